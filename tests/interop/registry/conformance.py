"""Reads the report of the distribution specification's test suite; fails when a test failed for another reason than the
deliberate differences that docs/guides/registry.md lists."""

import collections
import re
import sys
import xml.etree.ElementTree

# What a test says when the suite's manifests are refused: they name no component, or are pushed by a digest, or are
# larger than 64 KiB. Their tags and blobs are then not there.
REFUSED = re.compile(
    r"(manifest put failed: .* received 4(00|13)"
    r"|manifest (head|get) failed: .* received 404"
    r"|blob (head|get) failed: .* received 404"
    r"|missing tag "
    r"|entry missing from referrers list)"
)
# Groups of tests without any manifest: all of them must pass.
COMPLETE = re.compile(r"^OCI Conformance Test/(ping|empty|sha256 blobs)(/|$)")


def main(path):
    counts, wrong = collections.Counter(), []
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        counts[case.get("status")] += 1
        if case.get("status") in ("passed", "skipped", "disabled"):
            continue
        reason = case.findtext("system-out") or "no reason"
        if COMPLETE.match(case.get("name")) or not REFUSED.match(reason):
            wrong.append(f"{case.get('name')}: {reason}")
    print(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))
    if wrong or counts["passed"] < 200:
        sys.exit("\n".join(["not by a deliberate difference:", *wrong]))
    print("every failure is a deliberate difference: see docs/guides/registry.md")


main(sys.argv[1])
