# SPDX-License-Identifier: Apache-2.0
"""usage: structured_client.py PORT MODEL: OpenAI's own package asks `cleave serve` for answers of a schema and for calls of
tools. The server's chat template shows tools. Exits 1 with what does not hold."""

import json
import sys

import httpx
import jsonschema
import openai

port, name = sys.argv[1:]
client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="-", max_retries=0, timeout=300)
chat = [{"role": "user", "content": "Tell me of a dog."}]
failures = []
dog = {"type": "object",
       "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 20},
                      "likes": {"type": "array", "items": {"enum": ["balls", "cats", "sticks"]}, "maxItems": 2}},
       "required": ["name", "age", "likes"], "additionalProperties": False}
tools = [{"type": "function", "function": {"name": "feed", "description": "Feed the dog.", "parameters": {
             "type": "object", "properties": {"food": {"enum": ["meat", "bread"]}, "grams": {"type": "integer", "maximum": 99}},
             "required": ["food"]}}},
         {"type": "function", "function": {"name": "walk"}}]
by_name = {"feed": tools[0]["function"]["parameters"], "walk": {"type": "object", "maxProperties": 0}}


def expect(holds, promise):
    if not holds:
        failures.append(promise)


def is_valid(text, schema):
    try:
        jsonschema.validate(json.loads(text), schema)
        return True
    except (ValueError, jsonschema.ValidationError) as error:
        failures.append(f"{text!r}: {error}")
        return False


def ask(messages=None, **more):
    return client.chat.completions.create(model=name, messages=messages or chat, max_tokens=150, **more)


def schemas():
    form = {"type": "json_schema", "json_schema": {"name": "dog", "strict": True, "schema": dog}}
    for temperature in 0, 0.8, 5:
        answer = ask(response_format=form, temperature=temperature, n=3, seed=4)
        for choice in answer.choices:
            expect(choice.finish_reason == "stop" and is_valid(choice.message.content, dog), "an answer keeps its schema")
            expect(list(json.loads(choice.message.content)) == list(dog["properties"]), "its properties have the schema's order")
        again = ask(response_format=form, temperature=temperature, n=3, seed=4)
        expect([c.message for c in again.choices] == [c.message for c in answer.choices], "a seed draws the same answers")
        streamed = [""] * 3
        for chunk in ask(response_format=form, temperature=temperature, n=3, seed=4, stream=True):
            for choice in chunk.choices:
                streamed[choice.index] += choice.delta.content or ""
        expect(streamed == [c.message.content for c in answer.choices], "a stream has the whole answers")
    cut = client.chat.completions.create(model=name, messages=chat, max_tokens=3, response_format=form)
    expect(cut.choices[0].finish_reason == "length", "an answer that is cut says so")
    plain = client.completions.create(model=name, prompt="Once", max_tokens=60, temperature=0,
                                      extra_body={"response_format": {"type": "json_object"}})
    expect(plain.choices[0].text.startswith("{"), "a completion may be JSON, too")


def calls():
    for choice, names in (("required", {"feed", "walk"}), ({"type": "function", "function": {"name": "feed"}}, {"feed"})):
        for seed in range(6):
            answer = ask(tools=tools, tool_choice=choice, temperature=3, seed=seed)
            message = answer.choices[0].message
            expect(answer.choices[0].finish_reason == "tool_calls", "a call ends as one")
            expect(not message.content and len(message.tool_calls) == 1, "a call has no text")
            call = message.tool_calls[0]
            expect(call.type == "function" and call.function.name in names, f"{call.function.name} is a tool")
            expect(is_valid(call.function.arguments, by_name[call.function.name]), "arguments keep their schema")
            streamed = {"id": "", "name": "", "arguments": "", "finish": None}
            for chunk in ask(tools=tools, tool_choice=choice, temperature=3, seed=seed, stream=True):
                for piece in chunk.choices[0].delta.tool_calls or []:
                    expect(piece.index == 0, "the first call is number 0")
                    streamed["id"] += piece.id or ""
                    streamed["name"] += piece.function.name or ""
                    streamed["arguments"] += piece.function.arguments or ""
                streamed["finish"] = chunk.choices[0].finish_reason or streamed["finish"]
            expect(streamed["id"].startswith("call_") and streamed["finish"] == "tool_calls", "a streamed call has an id")
            expect((streamed["name"], streamed["arguments"]) == (call.function.name, call.function.arguments),
                   "a stream has the whole call")


def stops():
    """A stop text ends an answer of a schema, and a call, as any other; a call that it cuts is none."""
    form = {"type": "json_schema", "json_schema": {"name": "dog", "schema": dog}}
    whole = ask(response_format=form, temperature=3, seed=2).choices[0].message.content
    cut = ask(response_format=form, temperature=3, seed=2, stop=['"age"']).choices[0]
    expect(cut.message.content == whole[:whole.index('"age"')] and cut.finish_reason == "stop", "a stop text ends it")
    for stream in False, True:
        answer = ask(tools=tools, tool_choice="required", temperature=3, seed=1, stop=["parameters"], stream=stream)
        ends = [piece.choices[0].finish_reason for piece in answer] if stream else [answer.choices[0].finish_reason]
        expect(ends[-1] == "stop", "a call that was cut is not told as one")
        answer = ask(tools=tools, tool_choice="required", temperature=3, seed=1, stop=["never there"], stream=stream,
                     parallel_tool_calls=False)
        ends = [piece.choices[0].finish_reason for piece in answer] if stream else [answer.choices[0].finish_reason]
        expect(ends[-1] == "tool_calls", "a call that is whole is")


def own_choice():
    """What the model begins with decides; the test biases it."""
    ids = {text: httpx.post(f"http://127.0.0.1:{port}/tokenize", json={"prompt": text, "add_special_tokens": False}).json()
           ["tokens"][-1] for text in ("{", "a")}
    called = ask(tools=tools, logit_bias={str(ids["{"]): 100}, temperature=0)
    expect(called.choices[0].finish_reason == "tool_calls", "a text that begins with a brace is a call")
    message = called.choices[0].message
    expect(is_valid(message.tool_calls[0].function.arguments, by_name[message.tool_calls[0].function.name]), "and kept")
    free = ask(tools=tools, logit_bias={str(ids["{"]): -100, str(ids["a"]): 5}, temperature=0)
    expect(free.choices[0].message.content and not free.choices[0].message.tool_calls, "any other text is free")
    none = ask(tools=tools, tool_choice="none", temperature=0)
    expect(none.choices[0].message == ask(temperature=0).choices[0].message, "tools that may not be called change nothing")
    rendered = httpx.post(f"http://127.0.0.1:{port}/v1/render", json={"messages": chat, "tools": tools}).json()["prompt"]
    expect("Feed the dog." in rendered, "the template shows the tools")
    history = chat + [{"role": "assistant", "content": None, "tool_calls": [message.tool_calls[0].model_dump()]},
                      {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "done"}]
    expect(ask(history, tools=tools, tool_choice="none").choices[0].message.content, "a call and its result are a chat")


def refusals():
    def refused(param, **more):
        try:
            ask(**more)
            failures.append(f"{more} is refused")
        except openai.BadRequestError as error:
            expect(error.param == param and param in error.message, f"{error} names {param}")

    wrong = {"type": "object", "properties": {"a": {"type": "string", "not": {}}}}
    refused("response_format.json_schema.schema/properties/a/not",
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": wrong}})
    refused("tools[0].function.parameters/properties/a/not",
            tools=[{"type": "function", "function": {"name": "f", "parameters": wrong}}])
    refused("tool_choice", tools=tools, tool_choice={"type": "function", "function": {"name": "fly"}})
    refused("tool_choice", tool_choice="required")
    refused("response_format", response_format={"type": "xml"})
    refused("ignore_eos", response_format={"type": "json_object"}, extra_body={"ignore_eos": True})
    refused("parallel_tool_calls", tools=tools, parallel_tool_calls="many")
    refused("response_format", tools=tools, response_format={"type": "json_object"})


schemas()
calls()
stops()
own_choice()
refusals()
for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)
