# SPDX-License-Identifier: Apache-2.0
"""write_requests.py FOLDER: bodies of calls, and what clients write on a connection, a file each."""
import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
schemas = [
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0},
                                      "likes": {"type": "array", "items": {"enum": ["balls", 1, None]}, "maxItems": 2}},
     "required": ["name"], "additionalProperties": False},
    {"anyOf": [{"type": "string", "pattern": "^[a-c]{2,4}-\\d+$"}, {"type": "string", "format": "date-time"}]},
    {"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]}, {"$ref": "#/$defs/b"}],
     "$defs": {"b": {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]}}},
    {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
        "value": {"type": "number", "exclusiveMinimum": -1.25, "maximum": 3},
        "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["value", "next"]}}},
    {"type": "array", "prefixItems": [{"type": "boolean"}, {"const": {"k": [1.5, "\n"]}}], "items": False},
    {"type": "object", "additionalProperties": {"type": ["integer", "null"]}},
]
tools = [{"type": "function", "function": {"name": "feed", "description": "Feed it.", "parameters": schemas[0]}},
         {"type": "function", "function": {"name": "walk"}}]
called = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "1", "type": "function", "function": {"name": "feed", "arguments": '{"name": "Rex"}'}}]}
bodies = [
    {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}},
    {"prompt": ["a", [1, 5, 6]], "max_tokens": 4, "n": 2, "echo": True, "logprobs": 2, "stop": ["x", "yz"], "seed": 7,
     "logit_bias": {"5": -100}, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "repetition_penalty": 1.5, "presence_penalty": -1},
    {"prompt": [1, 2, 3], "max_tokens": 0, "echo": True, "logprobs": 0},
    {"prompt": "a", "response_format": {"type": "json_object"}, "stream": True},
    {"messages": chat, "max_completion_tokens": 9, "logprobs": True, "top_logprobs": 3, "stop": "x"},
    {"messages": [*chat, called, {"role": "tool", "tool_call_id": "1", "content": "done"}], "tools": tools, "tool_choice": "none",
     "chat_template_kwargs": {"enable_thinking": False}},
    {"messages": chat, "tools": tools, "tool_choice": "required", "parallel_tool_calls": False},
    {"messages": chat, "tools": tools, "tool_choice": {"type": "function", "function": {"name": "walk"}}, "stream": True},
    {"messages": chat, "tools": tools, "max_tokens": 20},
    {"tokens": [1, 2, 3]},
    *({"messages": chat, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
      for schema in schemas),
]
texts = [json.dumps(body).encode() for body in bodies]
host = b"Host: x\r\n"
http = [
    b"GET /health HTTP/1.1\r\n" + host + b"\r\nHEAD /v1/models HTTP/1.1\r\n" + host + b"\r\n",
    b"GET http://x/a%20b?c=d HTTP/1.0\r\nConnection: keep-alive\r\nAccept: text/html\r\n\r\n",
    b"POST /stream HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nA: b\r\n\r\n",
    b"POST /stream HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc",
    b"POST /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbodyGET /nobody HTTP/1.1\r\n\r\n",
    b"POST /locked HTTP/1.1\r\nContent-Length: 9\r\n\r\nsome body",
    b"POST /a HTTP/1.1\r\nContent-Length: 9000\r\n\r\n" + b"x" * 9000,
    b"GET /a HTTP/1.1\r\nA: " + b"x" * 3000 + b"\r\n\r\n",
    *(b"POST " + path + b" HTTP/1.1\r\n" + host + b"Content-Length: " + str(len(text)).encode() + b"\r\n\r\n" + text
      for path, text in ((b"/v1/completions", texts[0]), (b"/v1/chat/completions", texts[6]), (b"/tokenize", b'{"prompt": "a"}'),
                         (b"/v1/render", texts[5]), (b"/detokenize", texts[9]))),
]
for number, seed in enumerate(texts + http):
    (folder / str(number)).write_bytes(seed)
