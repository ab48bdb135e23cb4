"""The job function of the workers of RQ."""


def echo(value):
    return value
