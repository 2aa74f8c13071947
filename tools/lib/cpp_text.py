# SPDX-License-Identifier: Apache-2.0
"""C++ read as text, for rules about comments, includes and the length of functions.

No compiler reads the templates of kernels before they are filled in, and a compiler sees one side
of each #if. So this works on text: strings and comments are found first, then braces.
"""

import re

TOKEN = re.compile(
    r"""//(?:\\\n|[^\n])*"""  # a line comment goes on after a backslash
    r"""|/\*.*?\*/"""
    r"""|R"(?P<mark>[^\s()\\]*)\(.*?\)(?P=mark)\""""
    r"""|"(?:\\.|[^"\\\n])*\""""
    r"""|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])*'""",  # 1'000 holds no character
    re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w*)(?:\\\n|[^\n])*", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
TYPE = re.compile(r"\s*(?:(?:typedef|static|constexpr|inline|export|const)\s+)*(?:class|struct|union|enum)\b")
TEMPLATE = re.compile(r"\s*template\s*<")
ACCESS = re.compile(r"\s*(?:public|private|protected)\s*:(?!:)")


def blank(text):
    """The same text, with spaces for everything but line ends."""
    return re.sub(r"[^\n]", " ", text)


def code_of(text):
    """`text` with strings and comments blanked: every brace left is one of the code."""
    return TOKEN.sub(lambda match: blank(match.group()), text)


def comments_of(text):
    """Comments, as offsets of their beginning and end."""
    for match in TOKEN.finditer(text):
        if match.group().startswith(("//", "/*")):
            yield match.span()


def includes_of(text):
    """Line number and name of each #include "NAME"."""
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1)


def closing(code, at):
    """The offset of the bracket that closes the one at `at`, or the end."""
    depth = 0
    for match in re.compile(r"[(){}]").finditer(code, at):
        depth += 1 if match.group() in "({" else -1
        if depth == 0:
            return match.start()
    return len(code)


def without_template_head(head):
    """`head` after "template <...>" and the like."""
    while TEMPLATE.match(head):
        at = head.index("<")
        depth = 0
        for at in range(at, len(head)):
            depth += {"<": 1, ">": -1}.get(head[at], 0)
            if depth == 0:
                break
        head = head[at + 1:]
    return head


def one_side(code):
    """`code` without directives and without what follows an #else: braces then match."""
    parts, at, hidden = [], 0, []
    for match in DIRECTIVE.finditer(code):
        piece = code[at:match.start()]
        parts.append(blank(piece) if any(hidden) else piece)
        parts.append(blank(match.group()))
        at = match.end()
        word = match.group(1)
        if word.startswith("if"):
            hidden.append(False)
        elif word in ("else", "elif") and hidden:
            hidden[-1] = True
        elif word == "endif" and hidden:
            hidden.pop()
    return "".join(parts) + code[at:]


def functions_of(text):
    """First and last line of each function, lambdas and local types within it included.

    A block belongs to a function when its head has a parameter list, and is neither that of a
    namespace, of a type nor of a value. Namespaces and types are looked into.
    """
    code = one_side(code_of(text))
    head, at = 0, 0
    mark = re.compile(r"[;{}(]")
    while (match := mark.search(code, at)) is not None:
        at = match.end()
        if match.group() == "(":
            at = closing(code, match.start()) + 1
        elif match.group() in ";}":
            head = at
        else:
            words = without_template_head(ACCESS.sub("", code[head:match.start()]))
            if re.search(r"\bnamespace\b", words) or re.fullmatch(r"\s*extern\s*", words):
                head = at
                continue
            if TYPE.match(words) and not re.match(r"\s*enum\b", words) and not words.rstrip().endswith("="):
                head = at
                continue
            end = closing(code, match.start())
            at = end + 1
            following = code[at:].lstrip()[:1] if at < len(code) else ""
            if following in (",", "{"):  # a member's initial value; the body is still to come
                continue
            if "(" in words and not words.rstrip().endswith("="):
                begin = head + len(code[head:]) - len(code[head:].lstrip())
                yield code.count("\n", 0, begin) + 1, code.count("\n", 0, end) + 1
            head = at
