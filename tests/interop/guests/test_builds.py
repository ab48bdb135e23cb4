"""What the build of a Python project shows when it fails, and what goes into a component."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from side_by_side import load_tests  # noqa: F401


def build(handler, cache=None, output=None, variables=None, **files):
    """The exit status of a build, and what it wrote."""
    environment = os.environ | {"RUST_BACKTRACE": "1"} | (variables or {})
    if cache:
        environment["XDG_CACHE_HOME"] = str(cache)
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
            str(output or f"{directory}/out.wasm"),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, env=environment, umask=0o022
        )
        assert done.stdout == "", done.stdout
        return done.returncode, done.stderr.replace(directory, "PROJECT")


PYDANTIC = (
    "pydantic-core has machine code, which a component cannot run (needed by pydantic); use "
    "pydantic<2, which is pure Python"
)

# The first line of the long step.
BEGUN = "building out.wasm, which takes some 10 seconds"


class Failures(unittest.TestCase):
    def failure(self, handler, cache=None, **more):
        status, shown = build(handler, cache, **more)
        self.assertEqual(status, 1, shown)
        for hidden in ["gristmill/_", "gristmill_entry", "importlib", "PROJECT", '"/', "anyhow"]:
            self.assertNotIn(hidden, shown)
        return shown

    def test_machine_code_is_named_alone_before_the_long_build(self):
        with tempfile.TemporaryDirectory() as cache:
            shown = self.failure("import pydantic\n\ndef handler(job): pass\n", cache)
            # The long part of the build has not begun.
            self.assertEqual([*Path(cache).rglob("*.archive")], [])
        self.assertEqual(shown, f"handler.py, line 1: {PYDANTIC}\n")

    def test_a_variable_that_the_build_lacks_is_named(self):
        variables = {"MILL_TOKEN": "of the author's shell"}
        source = 'import os\n\nTOKEN = os.environ["MILL_TOKEN"]\n\ndef handler(job): pass\n'
        shown = self.failure(source, variables=variables).splitlines()
        self.assertIn('  File "handler.py", line 3, in <module>', shown)
        self.assertIn("'MILL_TOKEN' is not set when the component is built", shown[-1])
        self.assertIn("@gristmill.init", shown[-1])

    def test_a_missing_module_of_the_project_is_no_package(self):
        (self_made, package) = (
            self.failure(f"import {name}\n\ndef handler(job): pass\n", helper_py="").splitlines()[-1]
            for name in ["helper.part", "millstone"]
        )
        self.assertEqual(self_made, "hint: the project has no module helper.part")
        self.assertIn("the project has no millstone.py", package)

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
        # Here, and in the sandbox.
        for condition, begun in [("True", []), ("sys.platform == 'wasi'", [BEGUN])]:
            helper = f"import sys\n\nif {condition}:\n    raise OSError('no flour')\n"
            shown = self.failure("import helper\n\ndef handler(job): pass\n", helper_py=helper)
            lines = shown.splitlines()
            self.assertEqual(lines[: len(begun)], begun)
            lines = lines[len(begun) :]
            self.assertEqual(lines[1], '  File "handler.py", line 1, in <module>')
            self.assertEqual(lines[3], '  File "helper.py", line 4, in <module>')
            self.assertEqual(lines[-1], "OSError: no flour")
            self.assertEqual(len(lines), 6, shown)

    def test_the_module_runs_in_an_empty_directory(self):
        shown = self.failure(
            'text = open("model.txt").read()\n\ndef handler(job): pass\n', model_txt="a model"
        )
        self.assertIn("`Path(__file__).parent`", shown.splitlines()[-1])


class Warnings(unittest.TestCase):
    def warnings(self, handler, **more):
        status, shown = build(handler, **more)
        self.assertEqual(status, 0, shown)
        *warnings, begun, size = shown.splitlines()
        self.assertEqual(begun, BEGUN)
        self.assertRegex(size, r"\d MiB$")
        return warnings

    def test_imports_that_will_fail_are_named(self):
        source = (
            "import aiohttp\n\n"  # works without its machine code
            "def handler(job):\n    import pydantic\n    import multidict\n"
        )
        [warning] = self.warnings(source, requirements_txt="pydantic\naiohttp\n")
        self.assertEqual(
            warning, f"warning: handler.py, line 4: this import will fail: {PYDANTIC}"
        )

    def test_a_requirement_that_is_of_no_use_is_named(self):
        [warning] = self.warnings(
            "def handler(job): pass\n", requirements_txt="aiohttp\npydantic_core==2\n"
        )
        self.assertEqual(
            warning,
            f"warning: requirements.txt: {PYDANTIC.replace(' (needed by pydantic)', '')}",
        )

    def test_reads_of_the_environment_at_the_top_are_named(self):
        variables = {"MILL_PORT": "of the author's shell"}
        source = (
            "import os\n\nimport aiohttp, requests\nimport settings\n"
            'PORT = os.environ.get("MILL_PORT", 80)\n'
            'assert PORT == 80 and "MILL_URL" not in os.environ\n'
            'os.environ.setdefault("MILL_MODE", "rye")\n\n'
            'def handler(job):\n    return os.environ["MILL_JOB"]\n'
        )
        settings = 'import os\n\ndef read():\n    return os.getenv("MILL_HOST")\n\nHOST = read()\n'
        warnings = self.warnings(source, variables=variables, settings_py=settings)
        places = [warning.split(" when ")[0] for warning in warnings]
        self.assertEqual(
            places,
            [
                "warning: settings.py, line 4 reads MILL_HOST",
                "warning: handler.py, line 5 reads MILL_PORT",
                "warning: handler.py, line 6 reads MILL_URL",
            ],
        )


class Cache(unittest.TestCase):
    def test_a_second_run_after_a_build_compiles_nothing(self):
        with tempfile.TemporaryDirectory() as place:
            component = Path(place, "out.wasm")
            cache = Path(place, "cache")
            status, shown = build("def handler(job): return 7\n", cache, output=component)
            self.assertEqual(status, 0, shown)
            directory = cache / "gristmill"
            self.assertEqual(directory.stat().st_mode & 0o777, 0o700)
            # As an earlier version of the SDK has made it.
            directory.chmod(0o755)

            def entries():
                command = [os.environ["GRISTMILL"], "run", component, "--input", "{}"]
                environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
                subprocess.run(command, check=True, env=environment, timeout=300)
                compiled = [p for p in directory.rglob("components/**/*") if p.is_file()]
                compiled = [p for p in compiled if p.suffix != ".stats"]
                return {p: p.stat().st_mtime_ns for p in compiled}

            first = entries()
            self.assertTrue(first, "the cache is used")
            self.assertEqual(entries(), first)


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
        self.assertRegex(shown, rf"^{BEGUN}\nPROJECT/out\.wasm: \d+\.\d MiB\n$")


if __name__ == "__main__":
    unittest.main()
