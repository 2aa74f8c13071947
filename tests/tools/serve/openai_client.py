# SPDX-License-Identifier: Apache-2.0
"""usage: openai_client.py PORT KEY PROMPT TEXT: OpenAI's own package, and clients that leave or read slowly, at
`cleave serve` of the bundled model. TEXT: what `cleave run` continues PROMPT with. Exits 1 with what does not hold."""

import asyncio
import json
import socket
import sys
import time

import httpx
import openai

port, key, prompt, text = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
url = f"http://127.0.0.1:{port}"
options = {"base_url": f"{url}/v1", "api_key": key, "max_retries": 0, "timeout": 300}
headers = {"Authorization": f"Bearer {key}"}
chat = [{"role": "user", "content": "Tell me of a dog."}]
failures = []


def expect(holds, promise):
    if not holds:
        failures.append(promise)


def raises(kind, piece, call):
    try:
        call()
    except kind as error:
        expect(piece in str(error), f"{error} has {piece!r}")
        return
    failures.append(f"{kind.__name__} with {piece!r}")


def metric(name):
    for line in httpx.get(f"{url}/metrics", headers=headers).text.splitlines():
        if line.startswith(f"cleave:{name}{{"):
            return float(line.split()[-1])
    raise KeyError(name)


def is_idle():
    """Waits for it."""
    for _ in range(40000):
        if metric("num_requests_running") + metric("num_requests_waiting") == 0:
            return True
        time.sleep(0.005)
    return False


def completions(client):
    expect([model.id for model in client.models.list()] == ["bundled"], "the model is listed")
    call = {"model": "bundled", "prompt": prompt, "max_tokens": 30, "temperature": 0}
    whole = client.completions.create(**call)
    expect(whole.choices[0].text == text, "a completion is what `cleave run` writes")
    expect(whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens, "usage adds up")
    pieces = list(client.completions.create(**call, stream=True))
    expect("".join(piece.choices[0].text for piece in pieces) == text, "a stream has the whole text")
    drawn = {**call, "temperature": 1, "seed": 5, "n": 2, "logprobs": 2}
    first, second = client.completions.create(**drawn), client.completions.create(**drawn)
    expect([c.text for c in first.choices] == [c.text for c in second.choices], "a seed draws the same texts")
    expect(first.choices[0].text != first.choices[1].text, "copies differ")
    expect(len(first.choices[0].logprobs.token_logprobs) == len(first.choices[0].logprobs.tokens), "logprobs for all")
    stopped = client.completions.create(**call, stop=[text[8:11]])
    expect(stopped.choices[0].text == text[:8] and stopped.choices[0].finish_reason == "stop", "a stop text ends it")


def chats(client):
    call = {"model": "bundled", "messages": chat, "max_completion_tokens": 12, "temperature": 0}
    whole = client.chat.completions.create(**call, logprobs=True, top_logprobs=1)
    said = whole.choices[0].message.content
    expect(said and whole.choices[0].message.role == "assistant", "a chat is answered")
    likely = whole.choices[0].logprobs.content
    expect(all(one.token == one.top_logprobs[0].token for one in likely), "the greedy token is the likeliest")
    streamed, usage = "", None
    for chunk in client.chat.completions.create(**call, stream=True, stream_options={"include_usage": True}):
        streamed += "".join(choice.delta.content or "" for choice in chunk.choices)
        usage = chunk.usage or usage
    expect(streamed == said, "a streamed chat has the whole text")
    expect(usage == whole.usage, "a stream's usage is the whole answer's")


def errors(client):
    def ask(**more):
        return lambda: client.chat.completions.create(**{"model": "bundled", "messages": chat, **more})

    raises(openai.BadRequestError, "temperature", ask(temperature=-1))
    raises(openai.BadRequestError, "messages", ask(messages=[]))
    raises(openai.NotFoundError, "gpt-9", ask(model="gpt-9"))
    raises(openai.BadRequestError, "tokens", ask(max_tokens=100000))
    stranger = openai.OpenAI(**{**options, "api_key": "wrong"})
    raises(openai.AuthenticationError, "key", stranger.models.list)


async def together():
    async with openai.AsyncOpenAI(**options) as client:
        calls = [client.completions.create(model="bundled", prompt=prompt, max_tokens=30, temperature=0)
                 for _ in range(40)]
        answers = await asyncio.gather(*calls)
    expect(all(answer.choices[0].text == text for answer in answers), "each in company has the text that it has alone")


def leaving(client):
    """Three ways; in each the request would run for long."""
    call = {"model": "bundled", "prompt": ["Once"] * 200, "max_tokens": 200, "temperature": 0}
    with client.completions.create(**call, stream=True, extra_body={"ignore_eos": True}) as stream:
        next(iter(stream))
    expect(is_idle(), "a stream that is closed ends its requests")
    raises(openai.APITimeoutError, "", lambda: client.with_options(timeout=0.05).completions.create(**call))
    expect(is_idle(), "a client that gives up ends its requests")
    body = json.dumps(call).encode()
    with socket.create_connection(("127.0.0.1", port)) as half:
        head = f"POST /v1/completions HTTP/1.1\r\nAuthorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n"
        half.sendall(head.encode() + body)
        half.shutdown(socket.SHUT_WR)
        expect(half.recv(1) == b"", "a half-closed connection counts as left")
    expect(is_idle(), "a half-closed connection ends its requests")


def slow_reader(client):
    call = {"model": "bundled", "prompt": [prompt] * 50, "max_tokens": 60, "temperature": 0, "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", headers=headers, json=call, timeout=300) as slow:
        lines = slow.iter_lines()
        next(lines)
        expect(client.completions.create(model="bundled", prompt=prompt, max_tokens=30, temperature=0)
               .choices[0].text == text, "others are served beside one that does not read")
        texts = [""] * 50
        for line in lines:
            if line.startswith("data: {"):
                choice = json.loads(line[6:])["choices"][0]
                texts[choice["index"]] += choice["text"]
    # The first piece was read before.
    expect(all(texts[i] == texts[-1] for i in range(1, 50)), "who reads late gets all")
    expect(texts[-1].startswith(text), "and in order")


with openai.OpenAI(**options) as openai_client:
    completions(openai_client)
    chats(openai_client)
    errors(openai_client)
    asyncio.run(together())
    leaving(openai_client)
    slow_reader(openai_client)
for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)
