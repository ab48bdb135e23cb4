"""Reads `cargo metadata`, and links the sources of the crates that the manifest names by an exact version."""

import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
metadata = json.load(sys.stdin)
[root] = [package for package in metadata["packages"] if package["id"] == metadata["resolve"]["root"]]
[node] = [node for node in metadata["resolve"]["nodes"] if node["id"] == root["id"]]
pinned = {wanted["name"] for wanted in root["dependencies"] if wanted["req"].startswith("=")}
for package in metadata["packages"]:
    if package["name"] in pinned and package["id"] in node["dependencies"]:
        link = folder / package["name"]
        link.unlink(missing_ok=True)
        link.symlink_to(pathlib.Path(package["manifest_path"]).parent)
