"""docs/reference/sdks.md names every public member of the three guest SDKs, each in the column of
its language, and no name that an SDK does not have. Usage: test_sdk_reference.py
"""

import ast
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/reference/sdks.md"
LANGUAGES = ("Rust", "Python", "JavaScript")
# The heading of the table of names that belong to the languages themselves.
NOT_OF_SDKS = "Environment, files and clocks"


def words_of_page():
    """The words of inline code in each language's column, with the title above them."""
    words = {language: {} for language in LANGUAGES}
    title = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            title = line.lstrip("# ")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or cells[:3] == [*LANGUAGES]:
            continue
        for language, cell in zip(LANGUAGES, cells):
            for code in re.findall(r"`([^`]+)`", cell):
                for word in re.findall(r"\w+", code):
                    words[language].setdefault(word, title)
    return words


def rust():
    """The public items, methods, fields and cases of enums."""
    source = ROOT / "guest-sdk/src"
    names = set()
    for file in ["call.rs", "context.rs", "error.rs", "handler.rs", "http.rs", "testing.rs"]:
        text = re.sub(r"//.*", "", (source / file).read_text()).split("#[cfg(test)]")[0]
        names |= set(
            re.findall(r"\bpub (?:const |async )?(?:fn|struct|enum|trait|type) (\w+)", text)
        )
        names |= set(re.findall(r"^    pub (\w+):", text, re.M))
        names |= set(re.findall(r"macro_rules! (\w+)", text))
        for body in re.findall(r"\bpub enum \w+ \{(.*?)^\}", text, re.M | re.S):
            names |= set(re.findall(r"^ +(\w+)(?:[(:,]| \{)", body, re.M))
        for body in re.findall(r"\bpub trait \w+.*?\{(.*?)^\}", text, re.M | re.S):
            names |= set(re.findall(r"\bfn (\w+)", body))
    for used in re.findall(r"^pub use ([^;]+);", (source / "lib.rs").read_text(), re.M):
        names |= set(re.findall(r"\b[A-Z]\w+", used))
    return names


def python():
    """The names in `__all__`, the classes of `testing`, and the public parts of these classes."""
    source = ROOT / "guest-sdk/python/src/gristmill"
    classes, exported = {}, set()
    for file in source.glob("*.py"):
        tree = ast.parse(file.read_text())
        classes |= {(file.stem, it.name): it for it in tree.body if isinstance(it, ast.ClassDef)}
        for it in tree.body:
            if isinstance(it, ast.Assign) and ast.unparse(it.targets[0]) == "__all__":
                exported |= set(ast.literal_eval(it.value))
    exported |= {"Call", "TestContext", "start"}
    names = set(exported)
    for (_, name), tree in classes.items():
        if name not in exported:
            continue
        for it in tree.body:
            if isinstance(it, ast.AnnAssign):
                names.add(it.target.id)
            elif isinstance(it, ast.Assign):
                names |= {target.id for target in it.targets}
            elif isinstance(it, ast.FunctionDef) and it.name != "__init__":
                names.add(it.name)
            elif isinstance(it, ast.FunctionDef):
                names |= {argument.arg for argument in it.args.kwonlyargs}
                attributes = (at for at in ast.walk(it) if isinstance(at, ast.Attribute))
                names |= {
                    at.attr
                    for at in attributes
                    if isinstance(at.ctx, ast.Store) and getattr(at.value, "id", "") == "self"
                }
    return {name for name in names if not name.startswith("_")}


def javascript():
    """What the declarations export, and the members of exported classes and interfaces."""
    names = set()
    for file in ["index.d.ts", "http.d.ts", "testing.d.ts"]:
        text = (ROOT / "guest-sdk/javascript/src" / file).read_text()
        text = re.sub(r"/\*.*?\*/|//.*", "", text, flags=re.S)
        names |= set(re.findall(r"^export (?:class|interface|function|type) (\w+)", text, re.M))
        names |= set(re.findall(r"^export \* as (\w+)", text, re.M))
        for body in re.findall(r"^export (?:class|interface) [^{]*\{(.*?)^\}", text, re.M | re.S):
            names |= set(re.findall(r"^  (?:readonly |get )*(\w+)\??(?:[(<:]|$)", body, re.M))
    return names - {"constructor"}


class Reference(unittest.TestCase):
    def test_every_public_name_is_on_the_page(self):
        words = words_of_page()
        for language, find, least in [
            ("Rust", rust, 100),
            ("Python", python, 70),
            ("JavaScript", javascript, 70),
        ]:
            names = find()
            self.assertGreater(len(names), least, f"{language}: {names}")
            missing = sorted(names - words[language].keys())
            self.assertEqual(missing, [], f"{language}: docs/reference/sdks.md lacks these names")

    def test_every_name_on_the_page_is_in_the_sdk(self):
        places = {
            "Rust": "guest-sdk/src/**/*.rs",
            "Python": "guest-sdk/python/src/**/*.py",
            "JavaScript": "guest-sdk/javascript/src/*.*s",
        }
        for language, words in words_of_page().items():
            text = "\n".join(file.read_text() for file in ROOT.glob(places[language]))
            known = {"yield", *re.findall(r"\w+", text)}
            unknown = {it for it, title in words.items() if title != NOT_OF_SDKS} - known
            self.assertEqual(sorted(unknown), [], f"{language}: the SDK has no such names")


if __name__ == "__main__":
    unittest.main()
