"""What the workers of RQ run."""


def echo(value):
    return value
