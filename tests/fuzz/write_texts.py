# SPDX-License-Identifier: Apache-2.0
"""write_texts.py DATA FOLDER: the templates and tokenizers of the text tests, a file each."""
import json
import pathlib
import sys

data, folder = map(pathlib.Path, sys.argv[1:])
for number, case in enumerate(json.loads((data / "chat_cases.json").read_text())["cases"]):
    (folder / f"{number}.jinja").write_text(case["template"])
texts = json.loads((data / "cases.json").read_text())
for number, entry in enumerate(texts["tokenizers"]):
    document = dict(entry["parts"], model=dict(texts["bases"][entry["base"]], **entry["options"]))
    (folder / f"{number}.json").write_text(json.dumps(document, ensure_ascii=False))
