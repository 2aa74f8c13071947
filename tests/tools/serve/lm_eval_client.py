# SPDX-License-Identifier: Apache-2.0
"""usage: lm_eval_client.py PORT KEY BOS FOLDER: the package lm-eval scores the texts of FOLDER/texts.jsonl, one "text" a line, at
`cleave serve` through its model "local-completions", with the server's tokenizer. BOS: the id that begins a text. Prints
what it makes of each text: the logarithm of its probability, by text, as JSON. Nothing is fetched."""

import json
import os
import sys

port, key, bos, folder = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME=f"{folder}/home", OPENAI_API_KEY=key)

import lm_eval  # noqa: E402  (reads the environment)

url = f"http://127.0.0.1:{port}"
task = {"task": "texts", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": f"{folder}/texts.jsonl"}},
        "test_split": "test", "output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "bits_per_byte"}]}
results = lm_eval.simple_evaluate(
    model="local-completions", tasks=[task], log_samples=True, bootstrap_iters=0,
    model_args={"model": "bundled", "base_url": f"{url}/v1/completions", "tokenizer_backend": "remote", "auth_token": key,
                "custom_prefix_token_id": bos, "num_concurrent": 4, "max_length": 256})
(samples,) = results["samples"].values()
print(json.dumps({"version": lm_eval.__version__, "bits_per_byte": results["results"]["texts"]["bits_per_byte,none"],
                  "nll": {sample["doc"]["text"]: -sample["resps"][0][0] for sample in samples}}))
