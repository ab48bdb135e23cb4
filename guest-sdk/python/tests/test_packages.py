"""Which files the build puts into a component."""

import tempfile
import unittest
from pathlib import Path

from gristmill import _packages


class Directory(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)

    def write(self, **files: str) -> None:
        for name, text in files.items():
            path = self.root / name.replace("__", "/").replace("_py", ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


class Project(Directory):
    def test_modules_are_followed_into_functions(self) -> None:
        self.write(
            handler_py="def handler(job):\n    import helper\n    from numbers_ import one\n",
            helper_py="import requests.adapters\nfrom . import nothing\n",
            test_handler_py="import pytest\n",
            other_py="import django\n",
        )
        files, named = _packages.of_project(self.root, "handler")
        self.assertEqual(files, ["handler.py", "helper.py"])
        self.assertLessEqual({"requests", "numbers_"}, named)
        self.assertFalse({"pytest", "django"} & named)

    def test_a_package_is_carried_with_its_data(self) -> None:
        (self.root / "mill" / "sub").mkdir(parents=True)
        (self.root / "mill" / ".hidden").mkdir()
        for path, text in {
            "handler.py": "import mill.sub.part\n",
            "mill/__init__.py": "",
            "mill/table.json": "{}",
            "mill/machine.so": "",
            "mill/.hidden/secret": "x",
            "mill/sub/__init__.py": "from .. import late\nfrom .part import x\n",
            "mill/sub/part.py": "import httpx\n",
            "mill/late.py": "import markdown\n",
            "beside.json": "{}",
        }.items():
            (self.root / path).write_text(text)
        files, named = _packages.of_project(self.root, "handler")
        self.assertEqual(
            files,
            [
                "handler.py",
                "mill/__init__.py",
                "mill/late.py",
                "mill/sub/__init__.py",
                "mill/sub/part.py",
                "mill/table.json",
            ],
        )
        self.assertLessEqual({"httpx", "markdown"}, named)

    def test_a_source_may_begin_with_a_byte_order_mark(self) -> None:
        self.root.joinpath("handler.py").write_bytes(b"\xef\xbb\xbfimport requests\n")
        self.assertEqual(_packages.of_project(self.root, "handler"), (["handler.py"], {"requests"}))

    def test_a_source_may_declare_its_encoding(self) -> None:
        source = "# coding: latin-1\nimport requests\nmill = 'm\xfchle'\n".encode("latin-1")
        self.root.joinpath("handler.py").write_bytes(source)
        self.assertEqual(_packages.of_project(self.root, "handler")[1], {"requests"})

    def test_a_source_with_mistakes_names_nothing(self) -> None:
        for source in ["def (", b"\xff\xfe", b"\0"]:
            self.assertEqual([*_packages.imports(source, "")], [])


class Packages(Directory):
    def distribution(self, name: str, requires: str = "", files: str = "") -> None:
        info = self.root / f"{name}-1.0.dist-info"
        info.mkdir()
        needed = "".join(f"Requires-Dist: {line}\n" for line in requires.splitlines())
        info.joinpath("METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needed}"
        )
        paths = [
            f"{name}/__init__.py",
            f"{name}/machine.so",
            *files.split(),
            f"{info.name}/METADATA",
        ]
        for path in paths:
            self.root.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
            if not path.endswith("METADATA"):
                self.root.joinpath(path).write_text("")
        record = "".join(f"{path},,\n" for path in [*paths, "../bin/tool", f"{info.name}/RECORD"])
        info.joinpath("RECORD").write_text(record)

    def carried(self, named: set[str], requirements: str = "") -> list[str]:
        self.root.joinpath("requirements.txt").write_text(requirements)
        groups, _ = _packages.of_packages(self.root, self.root, named)
        return [group.key.rpartition("-")[0] for group in groups]

    def test_requirements_are_followed(self) -> None:
        self.distribution(
            "web",
            "core>=1; python_version > '3'\ntester; extra == 'test'\nfast; extra == \"speed\"",
        )
        for name in ["core", "tester", "fast", "Other_Name", "pip", "tzdata", "unused"]:
            self.distribution(name)
        self.assertEqual(self.carried({"web"}), ["core", "tzdata", "web"])
        self.assertEqual(
            self.carried(set(), "Web[speed]==1.0  # a comment\n"), ["core", "fast", "tzdata", "web"]
        )
        self.assertEqual(
            self.carried(set(), "-r more.txt\n./vendor/sdk[build]\nother.name\npip\n"),
            ["other-name", "tzdata"],
        )
        self.assertEqual(self.carried(set(), "\ufeffcore\n"), ["core", "tzdata"])

    def test_data_is_carried_and_machine_code_is_not(self) -> None:
        self.distribution("web", files="web/table.json web/__pycache__/x.pyc")
        [group] = _packages.of_packages(self.root, self.root, {"web"})[0]
        self.assertEqual(
            sorted(group.paths),
            [
                "web-1.0.dist-info/METADATA",
                "web-1.0.dist-info/RECORD",
                "web/__init__.py",
                "web/table.json",
            ],
        )
        machine_code = {"web.machine": "web"}
        self.assertEqual(_packages.machine_code(self.root), machine_code)
        self.assertEqual(_packages.machine_code(self.root, {"other"}), {})

    def test_a_huge_file_is_left_out_with_a_note(self) -> None:
        self.distribution("web", files="web/model.bin")
        with self.root.joinpath("web/model.bin").open("wb") as file:
            file.truncate(_packages.FILE_BYTES_MAX + 1)
        [group], notes = _packages.of_packages(self.root, self.root, {"web"})
        self.assertNotIn("web/model.bin", group.paths)
        self.assertEqual(notes, ["web/model.bin is left out: it has more than 32 MiB"])


if __name__ == "__main__":
    unittest.main()
