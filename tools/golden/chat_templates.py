"""Chat templates for the golden renderings: the default model's own, and others written for this
project in the styles of well-known families, each touching parts of the language that real
templates lean on. make_text_goldens.py renders them.

A template: name, source (None: the default model's own), bos_token, eos_token, cases. A case: name,
messages, and where they differ from the usual: add_generation_prompt (True), tools (none), names
(further variables), fails (False).
"""

USER = {"role": "user", "content": "Why is the sky blue?"}
ANSWER = {"role": "assistant", "content": "Because of Rayleigh scattering."}
AGAIN = {"role": "user", "content": "And at sunset?"}
SYSTEM = {"role": "system", "content": "Answer in one sentence."}
SPACED = {"role": "user", "content": "  \n two spaces before, a newline after \n"}
UNICODE = {"role": "user", "content": "Café — 你好 😊 <b>\"quoted\" & 'single'</b>"}

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city, \"now\" or later — °C",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
            "required": ["city"],
        },
    },
}
CALL = {"role": "assistant", "content": "",
        "tool_calls": [{"type": "function", "function": {
            "name": "get_weather", "arguments": {"city": "Köln", "days": 2}}}]}
RESULT = {"role": "tool", "content": "{\"celsius\": 21.5}"}
RESULT_2 = {"role": "tool", "content": "rain later"}
NEW_YEAR = {"date_string": "01 Jan 2025"}

# Blocks on lines of their own: what trim_blocks and lstrip_blocks take away must be taken away.
CHATML = """\
{% for message in messages %}
    {% if message.role not in ['system', 'user', 'assistant'] %}
        {{ raise_exception('Unknown role: ' + message.role) }}
    {% endif %}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
"""

# The first system message joins a preamble with the date; tool calls; content that is not a string.
LLAMA3 = """\
{{- bos_token -}}
{%- set ns = namespace(preamble='') -%}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "unknown" %}
    {%- endif %}
{%- endif %}
{#- later turns are looped over without the system message -#}
{%- if messages and messages[0]['role'] == 'system' %}
    {%- set ns.preamble = messages[0]['content'] | trim %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set turns = messages %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nDate: " + date_string + "\\n" }}
{{- ns.preamble + "<|eot_id|>" }}
{%- for turn in turns %}
    {%- set who = 'ipython' if turn.role == 'tool' else turn.role %}
    {{- '<|start_header_id|>' + who + '<|end_header_id|>\\n\\n' }}
    {%- if 'tool_calls' in turn %}
        {%- if turn.tool_calls | length != 1 %}
            {{- raise_exception("One tool call a turn, not " ~ turn.tool_calls | length) }}
        {%- endif %}
        {%- set call = turn.tool_calls[0].function %}
        {{- '{"name": ' ~ call.name | tojson ~ ', "parameters": ' ~ call.arguments | tojson ~ '}' }}
    {%- elif turn.content is string %}
        {{- turn.content | trim }}
    {%- elif turn.content is mapping or turn.content is iterable %}
        {{- turn.content | tojson }}
    {%- endif %}
    {{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

# All on one line; roles must alternate.
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Turns must go user, assistant, user, assistant, ...') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}"
    "{% else %}{{ raise_exception('No such role here: ' + message['role']) }}{% endif %}"
    "{% endfor %}"
)

# No system role; the assistant has another name.
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('This model knows no system role') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Turns must go user, assistant, user, assistant, ...') }}{% endif %}"
    "{% if message['role'] == 'assistant' %}{% set role = 'model' %}"
    "{% else %}{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)

# Tools in the system turn, thoughts dropped from all but the newest answer, results of tools as
# user turns that share one header. Walks the messages backwards, writes to a namespace in a loop.
QWEN = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n\\nFunctions to call, one JSON object each:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{#- where the newest question stands: thoughts before it are dropped #}
{%- set ns = namespace(question=-1) %}
{%- for message in messages[::-1] %}
    {%- if ns.question < 0 and message.role == "user" %}
        {%- if not message.content.startswith('<tool_response>') %}
            {%- set ns.question = loop.revindex0 %}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set said, thought = message.content, '' %}
        {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in said %}
            {%- set thought = said.split('</think>')[0].split('<think>')[-1].strip('\\n') %}
            {%- set said = said.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if thought and loop.index0 > ns.question %}
            {{- '<think>\\n' + thought + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- said }}
        {%- for call in message.tool_calls or [] %}
            {%- if said or not loop.first %}
                {{- '\\n' }}
            {%- endif %}
            {%- if call.function %}
                {%- set call = call.function %}
            {%- endif %}
            {{- '<tool_call>\\n{"name": "' ~ call.name ~ '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or messages[loop.index0 - 1].role != "tool" %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != "tool" %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

# A macro, a nested loop, an inline if, filters and methods, break and continue, a list of typed
# content parts, an else branch of a loop.
ZOO = """\
{%- macro part(item) -%}
    {%- if item.type == 'text' -%}
        {{ item.text | trim }}
    {%- elif item.type == 'image' -%}
        <image>
    {%- endif -%}
{%- endmacro -%}
{%- set names = {'user': 'Human', 'assistant': 'AI', 'system': 'Note'} -%}
{{- bos_token if bos_token is defined and bos_token else '' -}}
{%- for message in messages -%}
    {%- if message.role == 'ignore' -%}{%- continue -%}{%- endif -%}
    {%- if message.role == 'stop' -%}{%- break -%}{%- endif -%}
    {{- loop.index ~ '/' ~ loop.length ~ ' ' -}}
    {{- names.get(message.role, message.role | upper) ~ ': ' -}}
    {%- if message.content is string -%}
        {{- message.content | trim | replace('\\n', ' ') -}}
    {%- else -%}
        {%- for item in message.content -%}
            {{- part(item) ~ ('' if loop.last else ' | ') -}}
        {%- endfor -%}
    {%- endif -%}
    {{- '\\n' if not loop.last -}}
{%- else -%}
    {{- '(nothing said)' -}}
{%- endfor -%}
{%- set roles = messages | map(attribute='role') | list -%}
{%- set asked = messages | selectattr('role', 'equalto', 'user') | list -%}
{{- '\\n[' + roles | join(',') + '] ' + asked | length | string + ' of ' ~ (messages | length) -}}
{%- if add_generation_prompt %}{{ '\\nAI:' }}{% endif -%}
"""

# System messages collected in a namespace from anywhere, markers outside ASCII, content of none.
DEEPSEEK = (
    "{% set ns = namespace(system='') %}"
    "{%- for message in messages %}{%- if message['role'] == 'system' %}"
    "{% set ns.system = ns.system + message['content'] %}{%- endif %}{%- endfor %}"
    "{{bos_token}}{{ns.system}}{%- for message in messages %}"
    "{%- if message['role'] == 'user' %}{{'<｜User｜>' + message['content']}}{%- endif %}"
    "{%- if message['role'] == 'assistant' and message['content'] is not none %}"
    "{{'<｜Assistant｜>' + message['content'].split('</think>')[-1] + eos_token}}{%- endif %}"
    "{%- endfor -%}{% if add_generation_prompt %}{{'<｜Assistant｜>'}}{% endif %}"
)

TEMPLATES = [
    {
        "name": "smollm", "source": None, "bos_token": "<|im_start|>", "eos_token": "<|im_end|>",
        "cases": [
            {"name": "default system prompt", "messages": [USER]},
            {"name": "own system prompt", "messages": [SYSTEM, USER]},
            {"name": "three turns", "messages": [USER, ANSWER, AGAIN]},
            {"name": "finished",
             "messages": [SYSTEM, USER, ANSWER], "add_generation_prompt": False},
            {"name": "unicode", "messages": [UNICODE]},
            {"name": "spaces kept", "messages": [SPACED]},
            {"name": "empty content", "messages": [{"role": "user", "content": ""}]},
            {"name": "no messages", "messages": []},
            {"name": "two user turns", "messages": [USER, AGAIN]},
        ],
    },
    {
        "name": "chatml", "source": CHATML, "bos_token": "<|endoftext|>", "eos_token": "<|im_end|>",
        "cases": [
            {"name": "one question", "messages": [USER]},
            {"name": "four turns", "messages": [SYSTEM, USER, ANSWER, AGAIN]},
            {"name": "finished", "messages": [USER, ANSWER], "add_generation_prompt": False},
            {"name": "spaces kept", "messages": [SPACED]},
            {"name": "unknown role", "fails": True,
             "messages": [{"role": "wizard", "content": "abra"}]},
        ],
    },
    {
        "name": "llama3", "source": LLAMA3,
        "bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>",
        "cases": [
            {"name": "date given", "names": NEW_YEAR, "messages": [USER]},
            {"name": "date of today", "messages": [SYSTEM, USER]},
            {"name": "trimmed", "names": NEW_YEAR,
             "messages": [SYSTEM | {"content": " \n Be brief. \n"}, SPACED, ANSWER, AGAIN]},
            {"name": "tool call", "names": NEW_YEAR, "messages": [USER, CALL, RESULT]},
            {"name": "structured tool result", "names": NEW_YEAR,
             "messages": [USER, CALL, RESULT | {
                 "content": {"celsius": 21.5, "sky": ["blue", None, True]}}]},
            {"name": "two tool calls", "names": NEW_YEAR, "fails": True,
             "messages": [USER, CALL | {"tool_calls": CALL["tool_calls"] * 2}]},
        ],
    },
    {
        "name": "mistral", "source": MISTRAL, "bos_token": "<s>", "eos_token": "</s>",
        "cases": [
            {"name": "one question", "messages": [USER]},
            {"name": "three turns", "messages": [USER, ANSWER, AGAIN]},
            {"name": "two user turns", "messages": [USER, AGAIN], "fails": True},
            {"name": "assistant first", "messages": [ANSWER, USER], "fails": True},
            {"name": "system in second place", "messages": [USER, SYSTEM], "fails": True},
        ],
    },
    {
        "name": "gemma", "source": GEMMA, "bos_token": "<bos>", "eos_token": "<eos>",
        "cases": [
            {"name": "one question", "messages": [USER]},
            {"name": "three turns", "messages": [SPACED, ANSWER, AGAIN]},
            {"name": "finished", "messages": [USER, ANSWER], "add_generation_prompt": False},
            {"name": "system refused", "messages": [SYSTEM, USER], "fails": True},
            {"name": "two user turns", "messages": [USER, AGAIN], "fails": True},
        ],
    },
    {
        "name": "qwen", "source": QWEN, "bos_token": None, "eos_token": "<|im_end|>",
        "cases": [
            {"name": "one question", "messages": [USER]},
            {"name": "system and history", "messages": [SYSTEM, USER, ANSWER, AGAIN]},
            {"name": "thinking off", "messages": [USER], "names": {"enable_thinking": False}},
            {"name": "old thoughts dropped",
             "messages": [USER, ANSWER | {"content": "<think>\nhm\n</think>\n\nRayleigh."}, AGAIN]},
            {"name": "thoughts of the last answer kept", "add_generation_prompt": False,
             "messages": [USER, ANSWER | {"content": "<think>\nhm\n</think>\n\nRayleigh."}]},
            {"name": "reasoning apart", "add_generation_prompt": False,
             "messages": [USER, ANSWER | {"reasoning_content": "short waves"}]},
            {"name": "tools", "messages": [SYSTEM, USER], "tools": [WEATHER, WEATHER]},
            {"name": "tool call and two results", "tools": [WEATHER],
             "messages": [USER, CALL, RESULT, RESULT_2]},
            {"name": "arguments as a string", "tools": [WEATHER],
             "messages": [USER, CALL | {"content": "Let me see.", "tool_calls": [
                 {"function": {"name": "get_weather", "arguments": "{\"city\": \"Bonn\"}"}}]}]},
        ],
    },
    {
        "name": "zoo", "source": ZOO, "bos_token": "<s>", "eos_token": "</s>",
        "cases": [
            {"name": "strings",
             "messages": [SYSTEM, SPACED, ANSWER, {"role": "critic", "content": "no"}]},
            {"name": "parts", "messages": [{"role": "user", "content": [
                {"type": "text", "text": " What is this? "}, {"type": "image"},
                {"type": "text", "text": "And this?"}]}]},
            {"name": "continue", "messages": [USER, {"role": "ignore", "content": "x"}, AGAIN]},
            {"name": "break", "messages": [USER, {"role": "stop", "content": "x"}, AGAIN]},
            {"name": "nothing", "messages": [], "add_generation_prompt": False},
        ],
    },
    {
        "name": "deepseek", "source": DEEPSEEK,
        "bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>",
        "cases": [
            {"name": "one question", "messages": [USER]},
            {"name": "two systems",
             "messages": [SYSTEM, USER, {"role": "system", "content": " Be kind."}]},
            {"name": "thoughts dropped",
             "messages": [USER, ANSWER | {"content": "<think>hm</think>Rayleigh."}, AGAIN]},
            {"name": "empty answer", "messages": [USER, ANSWER | {"content": None}, AGAIN]},
        ],
    },
]
