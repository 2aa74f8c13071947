# SPDX-License-Identifier: Apache-2.0
"""usage: validate_answers.py FILE: each line is {"schema": ..., "text": ...}; prints texts that are no JSON, or not valid
for their schema by an implementation that is not ours. Exits 1 where there is one."""

import json
import sys

import jsonschema

failures = 0
for line in open(sys.argv[1], encoding="utf-8"):
    row = json.loads(line)
    try:
        jsonschema.validate(json.loads(row["text"]), row["schema"], cls=jsonschema.Draft202012Validator)
    except (ValueError, jsonschema.ValidationError) as error:
        failures += 1
        print(f"{row['schema']}: {row['text']!r}: {error}")
sys.exit(1 if failures else 0)
