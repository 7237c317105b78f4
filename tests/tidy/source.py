# SPDX-License-Identifier: BSD-3-Clause
"""Just enough C++ to measure it: comments and strings blanked, braces counted."""
import re

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)"""
    r"""|(?P<raw>R"(?P<tag>[^()\s\\"]{0,16})\(.*?\)(?P=tag)")"""
    r"""|(?P<string>"(?:\\.|[^"\\\n])*")"""
    r"""|(?P<char>(?<![0-9A-Fa-f])'(?:\\.[^']*|[^'\\\n])')""",
    re.S | re.X)
_TYPE = re.compile(r"^(template\s*<.*>\s*)?(typedef\s+)?(class|struct|union|enum)\b", re.S)
_CALLABLE_END = re.compile(r"\)[\s\w&<>:*,\[\]()-]*$|\btry\s*$", re.S)


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def without_comments(text):
    """The text with comments blanked and strings kept; lines stay where they are."""
    return _TOKEN.sub(lambda m: _blank(m[0]) if m["comment"] else m[0], text)


def code_lines(text, is_cxx=True):
    """Of each line whether it holds more than comments and blanks."""
    if is_cxx:
        return [bool(line.strip()) for line in without_comments(text).splitlines()]
    return [bool(re.match(r"\s*[^\s#]", line)) for line in text.splitlines()]


def bare(text):
    """The text with comments, strings and preprocessor lines blanked."""
    text = _TOKEN.sub(lambda m: _blank(m[0]), text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: _blank(m[0]), text, flags=re.M)


def includes(text):
    """(line, name, quoted) of each #include."""
    for number, line in enumerate(without_comments(text).splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if match:
            yield number, match[2], match[1] == '"'


def string_literals(text):
    """(line, content) of each string outside comments."""
    for match in _TOKEN.finditer(text):
        if match["string"] or match["raw"]:
            yield text.count("\n", 0, match.start()) + 1, match[0]


def functions(text):
    """(first line, lines) of each function that is no part of another, signature included."""
    code = bare(text)
    stack, start = [], 0  # kinds of the open braces; start = offset after the last ; { or }
    begin = None
    for match in re.finditer(r"[;{}]", code):
        char, at = match[0], match.start()
        head = code[start:at]
        if char == "{":
            kind = _kind(head, "function" in stack)
            if kind == "function":
                begin = start + len(head) - len(head.lstrip())
            stack.append(kind)
            if kind == "value":
                continue
        elif char == "}" and stack:
            kind = stack.pop()
            if kind == "function":
                first = code.count("\n", 0, begin) + 1
                yield first, code.count("\n", 0, at) + 2 - first
            elif kind == "value":
                continue
        start = at + 1


def _kind(head, inside_function):
    if head[-1:].isalnum() or head[-1:] in ("_", ">"):
        return "value"  # formatted code has a blank before the brace of a body
    return "function" if not inside_function and _is_function(head.strip()) else "scope"


def _is_function(head):
    head = re.sub(r"^(public|private|protected)\s*:\s*", "", head)
    if head.startswith("namespace") or _TYPE.match(head):
        return False
    # A constructor's initialiser list may hold braces: what stands before its first colon decides.
    before_list = re.split(r"(?<!:):(?!:)", head)[0].rstrip()
    return bool(_CALLABLE_END.search(head) or _CALLABLE_END.search(before_list))
