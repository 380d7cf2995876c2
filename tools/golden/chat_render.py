"""Chat templates as Hugging Face's transformers renders them, with real Jinja2.

The environment below is the one of transformers' apply_chat_template: a sandbox without mutation,
blocks trimmed, loop controls, tojson without HTML escapes, raise_exception, strftime_now. tools and
documents are always defined (as none, if not given); the file's special tokens come in as
bos_token, eos_token.
"""

import json

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


def clock_mark(pattern):
    """Stands in the golden text where the time of rendering would: the test puts strftime(pattern)
    there."""
    return f"@@{pattern}@@"


def environment(now):
    def raise_exception(message):
        raise TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent,
                          separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = now
    return env


def render(template, messages, add_generation_prompt, tools=None, now=clock_mark, **names):
    return environment(now).from_string(template).render(
        messages=messages,
        tools=tools,
        documents=None,
        add_generation_prompt=add_generation_prompt,
        **names,
    )
