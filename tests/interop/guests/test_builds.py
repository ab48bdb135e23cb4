"""What the build of a Python project shows when it fails, and what goes into a component."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path


def build(handler, cache=None, **files):
    """The exit status of a build, and what it wrote."""
    environment = (
        os.environ | {"RUST_BACKTRACE": "1"} | ({"XDG_CACHE_HOME": cache} if cache else {})
    )
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "handler.py").write_text(handler)
        for name, text in files.items():
            Path(directory, name.replace("_py", ".py").replace("_txt", ".txt")).write_text(text)
        command = [
            sys.executable,
            "-m",
            "gristmill.build",
            directory,
            "-o",
            f"{directory}/out.wasm",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        assert done.stdout == "", done.stdout
        return done.returncode, done.stderr.replace(directory, "PROJECT")


class Failures(unittest.TestCase):
    def failure(self, handler, **files):
        status, shown = build(handler, **files)
        self.assertEqual(status, 1, shown)
        for hidden in ["gristmill/_", "gristmill_entry", "importlib", "PROJECT", '"/', "anyhow"]:
            self.assertNotIn(hidden, shown)
        return shown

    def test_machine_code_is_named(self):
        shown = self.failure("import pydantic\n\ndef handler(job): pass\n")
        last = "pydantic_core has machine code, which a component cannot run (needed by pydantic)"
        self.assertEqual(shown.splitlines()[-1], last)

    def test_the_hosted_services_package_has_a_hint(self):
        shown = self.failure("import runpod\n\ndef handler(job): pass\n")
        self.assertIn("`import gristmill.runpod as runpod`", shown.splitlines()[-1])

    def test_a_part_that_the_sandbox_lacks_is_named(self):
        shown = self.failure("import fcntl\n\ndef handler(job): pass\n")
        self.assertIn("the Python of a component has no fcntl", shown.splitlines()[-1])

    def test_annotations_are_checked(self):
        source = "import gristmill\n\n@gristmill.handler\ndef f(ctx, input: list[bytes]): pass\n"
        shown = self.failure(source)
        self.assertIn("input of f: bytes cannot be read from JSON", shown.splitlines()[-1])

    def test_a_traceback_has_the_paths_of_the_project(self):
        for condition in ["True", "sys.platform == 'wasi'"]:  # here, and in the sandbox
            helper = f"import sys\n\nif {condition}:\n    raise OSError('no flour')\n"
            shown = self.failure("import helper\n\ndef handler(job): pass\n", helper_py=helper)
            lines = shown.splitlines()
            self.assertEqual(lines[1], '  File "handler.py", line 1, in <module>')
            self.assertEqual(lines[3], '  File "helper.py", line 4, in <module>')
            self.assertEqual(lines[-1], "OSError: no flour")
            self.assertEqual(len(lines), 6, shown)

    def test_the_module_runs_in_an_empty_directory(self):
        shown = self.failure(
            'text = open("model.txt").read()\n\ndef handler(job): pass\n', model_txt="a model"
        )
        self.assertIn("`Path(__file__).parent`", shown.splitlines()[-1])


class Parts(unittest.TestCase):
    def test_the_cache_is_made_cleaned_and_checked(self):
        with tempfile.TemporaryDirectory() as cache:
            directory = Path(cache, "gristmill", "python")
            directory.mkdir(parents=True)
            unused = directory / "old.archive"
            unused.write_bytes(b"")
            os.utime(unused, (0, 0))
            status, shown = build("def handler(job): pass\n", cache)
            self.assertEqual(status, 0, shown)
            self.assertFalse(unused.exists())
            [library] = directory.glob("python-*.archive")
            self.assertFalse([*directory.glob("*.partial")])
            library.write_bytes(library.read_bytes()[:1000])
            status, shown = build("def handler(job): pass\n", cache)
            self.assertEqual(status, 1)
            self.assertRegex(shown, r"the cache of compiled modules, .*, is damaged .*: delete it")

    def test_a_file_beside_the_handler_is_read_at_the_top(self):
        source = (
            "from pathlib import Path\n\n"
            'TEXT = (Path(__file__).parent / "model.txt").read_text()\n\n'
            "def handler(job): return TEXT\n"
        )
        status, shown = build(source, model_txt="a model")
        self.assertEqual(status, 0, shown)
        self.assertRegex(shown, r"^PROJECT/out\.wasm: \d+\.\d MiB\n$")


if __name__ == "__main__":
    unittest.main()
