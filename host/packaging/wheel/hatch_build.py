"""Names the machines that the program runs on: it is static, so each Linux of its processor."""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Tag(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = os.environ["GRISTMILL_WHEEL_TAG"]
