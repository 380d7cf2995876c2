"""What all makers of fixtures share: the header that says where a file comes from, and one way to
write JSON."""

import importlib.metadata
import json
import platform


def header(program, again, packages):
    """Goes first into every fixture: the program, what it ran on, how to make the file again."""
    versions = {"python": ".".join(platform.python_version_tuple()[:2])}
    versions |= {name: importlib.metadata.version(name) for name in packages}
    return {"maker": program, "versions": versions, "again": again}


def write_json(path, value):
    """Objects spread over lines, arrays of plain values on one line: small files that still diff
    well."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(pretty(value, "") + "\n")
    print(f"{path.stat().st_size:8d} {path}")


def pretty(value, indent):
    deeper = indent + "  "
    if isinstance(value, dict) and value:
        lines = [
            f"{deeper}{json.dumps(key)}: {pretty(item, deeper)}" for key, item in value.items()
        ]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return "[\n" + ",\n".join(deeper + pretty(item, deeper) for item in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)
