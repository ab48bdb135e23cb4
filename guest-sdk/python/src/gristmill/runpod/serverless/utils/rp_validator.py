"""``runpod.serverless.utils.rp_validator``."""

from __future__ import annotations

import json
from typing import Any


def validate(raw_input: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Checks an input against a schema: for each key a dict with ``type``, ``required``,
    ``default`` unless it is required, and perhaps ``constraints``, a function from a value to
    whether it is allowed. Returns ``{"validated_input": …}`` with the defaults filled in, or
    ``{"errors": […]}``. The texts of the errors are those of the hosted services' worker, since
    clients may look for them.
    """
    rules_of: dict[str, Any] = {}
    values = dict(raw_input)
    errors = [
        f"Unexpected input. {k} is not a valid input option." for k in values if k not in schema
    ]
    for key, rules in schema.items():
        if not isinstance(rules, dict):
            try:
                rules = json.loads(rules)
            except (TypeError, ValueError):
                rules = None
            if not isinstance(rules, dict):
                errors.append(f"Schema error, {key} is not a dictionary.")
                continue
        rules_of[key] = rules
    for key, rules in rules_of.items():
        if "type" not in rules:
            errors.append(f"Schema error, missing type for {key}.")
        if "required" not in rules or (rules["required"] and key not in values):
            errors.append(f"{key} is a required input.")
        elif key not in values and "default" in rules:
            values[key] = rules["default"]
        elif key not in values:
            errors.append(f"Schema error, missing default value for {key}.")
    for key, rules in rules_of.items():
        if key in values and "type" in rules:
            if rules["type"] is float and type(values[key]) is int:
                values[key] = float(values[key])
            is_default = "default" in rules and isinstance(values[key], type(rules["default"]))
            if not is_default and not isinstance(values[key], rules["type"]):
                errors.append(f"{key} should be {rules['type']} type, not {type(values[key])}.")
        if "constraints" in rules and not rules["constraints"](values.get(key)):
            errors.append(f"{key} does not meet the constraints.")
    return {"errors": errors} if errors else {"validated_input": values}
