"""Validates request bodies against the vendors' own request types: vendor_types.py FOLDER

The folder holds one file per wire API, `<api>.jsonl`, a line per request: {"name", "plain", "body"}. `plain` = the model
has no compat flags and the provider is the vendor: then keys that the type does not know are refused too. Run with a
Python that has the packages openai, anthropic and google-genai (interop_providers.py makes one).
"""
import json
import pathlib
import sys

import anthropic.types.beta.message_create_params as anthropic_params
import google.genai.types as gemini
import openai.types.chat.completion_create_params as chat_params
import openai.types.responses.response_create_params as responses_params
import pydantic

# Maps a level to a value of a server of its own, which OpenAI's type cannot know.
ON_PURPOSE = {("openai-completions", "04-reasoning-level-mapping-and-clamp")}

# Newer versions of the SDK's type leave it out, the API still takes it for models that have it.
ALSO_KNOWN = {"anthropic-messages": {"temperature"}}

TYPED_DICTS = {
    "openai-completions": chat_params.CompletionCreateParamsStreaming,
    "openai-responses": responses_params.ResponseCreateParamsStreaming,
    "anthropic-messages": anthropic_params.MessageCreateParamsStreaming,
}

GEMINI_PARTS = {
    "contents": list[gemini.Content],
    "systemInstruction": gemini.Content,
    "tools": list[gemini.Tool],
    "toolConfig": gemini.ToolConfig,
    "generationConfig": gemini.GenerationConfig,
}


def all_keys(kind):
    keys = set()
    for base in kind.__mro__ if hasattr(kind, "__mro__") else [kind]:
        keys |= set(getattr(base, "__annotations__", {}))
    return keys


def check_typed(api, line):
    kind = TYPED_DICTS[api]
    pydantic.TypeAdapter(kind).validate_python(line["body"])
    unknown = set(line["body"]) - all_keys(kind) - ALSO_KNOWN.get(api, set()) if line["plain"] else set()
    if unknown:
        raise ValueError(f"keys the type does not know: {sorted(unknown)}")


def check_gemini(line):
    body = line["body"]
    unknown = set(body) - set(GEMINI_PARTS)
    if unknown:
        raise ValueError(f"keys the API does not know: {sorted(unknown)}")
    for key, value in body.items():
        pydantic.TypeAdapter(GEMINI_PARTS[key]).validate_python(value)


def main(folder):
    bad = 0
    for api in [*TYPED_DICTS, "google-generative-ai"]:
        lines = (pathlib.Path(folder) / f"{api}.jsonl").read_text().splitlines()
        passed = purposely = 0
        for line in map(json.loads, lines):
            try:
                check_gemini(line) if api == "google-generative-ai" else check_typed(api, line)
                passed += 1
            except (pydantic.ValidationError, ValueError) as error:
                if (api, line["name"]) in ON_PURPOSE:
                    purposely += 1
                    continue
                bad += 1
                print(f"fail {api} {line['name']}: {error}")
        note = f", {purposely} on purpose not" if purposely else ""
        print(f"ok   vendor types {api}: {passed} of {len(lines)} bodies{note}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
