"""What a shell command says, as far as that can be told without running it.

The grammar finds the commands in a text; it is not believed when it comes to their words. A word
counts as literal only if its own characters leave the shell no choice, and a script counts as plain
only if nothing but blanks stands between its parts. Where the grammar and the shell disagree, as
they do about continued lines, the text is then not plain, and nobody takes it for harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from tree_sitter import Language, Node

#: What a text may cost to parse, about 25 ns each. Everybody waits meanwhile.
MOST_WORK = 1_200_000
#: Blanks, quotes and signs in a text that is cut without being parsed.
MOST_PARTS = 6000
_SIGNS = re.compile(rb"[|&;<>(){}\[$`!]")
_PARTS = re.compile(rb"[ \t\n]+|[\"'\\|&;<>(){}\[$`!]")

_MOST_MARKS = 2000
#: Where a document may begin, and whatever could hold the same signs and mean nothing by them.
_MARK = re.compile(
    r"""\\.|'[^']*'|\)"|"(?!\$\()(?:[^"\\]|\\.)*"|(?<!\S)\#[^\n]*|<<<|(?P<line>\n)"""
    r"""|<<(?P<tabs>-?)[ \t]*(?:'(?P<single>[^'\n]+)'|"(?P<double>[^"\n$`\\]+)"|\\(?P<quoted>[\w.!-]+)"""
    r"""|(?P<bare>[\w.!-]+))(?![^\s;|&<>)])""",
    re.DOTALL,
)
#: Commands and words, cut where a shell might cut them: not in what is quoted, unless it holds
#: commands itself.
_ROUGH = re.compile(r"""(?:'[^']*'|"(?:[^"\\$`]|\\.)*"|[^;|&\n(){}`'"]+|['"])+""", re.DOTALL)
_ROUGH_WORD = re.compile(r"""(?:'[^']*'|"(?:[^"\\$`]|\\.)*"|\\.|[^\s'"\\]+|['"\\])+""", re.DOTALL)
_CHANGES = re.compile(r"[$'\"\\]")

#: Unquoted characters that mean themselves, a quoted character, and the two kinds of quotes. A
#: dollar inside double quotes is itself where no name can begin.
_PIECE = re.compile(
    r"""[A-Za-z0-9_@%+=:,./^!~#-]+|\\([\x20-\x7e])|'([^']*)'"""
    r"""|"((?:[^"$`\\]|\\[^\n]|\$(?=["|) ]))*)\""""
)
#: A home directory where the shell would put one.
_TILDE = re.compile(r"(?:^|[:=])~")
_INERT = re.compile(r"[A-Za-z0-9_@%+=,./:-]+")
_UNDONE = re.compile(r"""\\([$`"\\])""")

#: What is read in a word that is not literal, to guess what it may become.
_GUESS = re.compile(
    r"""\$'((?:[^'\\]|\\.)*)'|\$?"((?:[^"\\]|\\.)*)"|'([^']*)'|\$\{(\w+)\}|\\(.)""", re.DOTALL
)
_CODE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|([0-7]{1,3})|(.))", re.DOTALL)
#: What the shell runs in a document whose last word is not quoted.
_COMMANDS_INSIDE = re.compile(r"\$\(|`")
_CODES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}
_SPLIT = re.compile(r"\$IFS(?:\$\d)?")

#: What may stand between two commands of a plain script.
_BETWEEN = frozenset({";", "&&", "||", "|", "|&", "\n", "!"})
#: What holds commands and says nothing more.
_HOLDERS = frozenset({"program", "pipeline", "list", "negated_command"})
_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
_BUILTINS = frozenset({"declaration_command", "unset_command", "test_command"})

#: What else there is, in words for the person who is asked.
_NAMES = {
    "&": "something left running in the background",
    "subshell": "a subshell",
    "compound_statement": "a group",
    "function_definition": "a function",
    "if_statement": "a condition",
    "for_statement": "a loop",
    "c_style_for_statement": "a loop",
    "while_statement": "a loop",
    "case_statement": "a case",
    "command_substitution": "a command in place of a word",
    "process_substitution": "a command in place of a file",
    "heredoc_redirect": "a text for its input",
    "herestring_redirect": "a text for its input",
    "declaration_command": "a variable",
    "unset_command": "a variable",
    "variable_assignment": "a variable",
    "variable_assignments": "a variable",
    "simple_expansion": "a variable",
    "expansion": "a variable",
    "arithmetic_expansion": "a sum",
    "test_command": "a condition",
}

#: Instead of the number of a command, for a part that is no word of one: it stands for itself, or
#: it begins with a number that would be part of a word right before it.
_APART, _JOINS = -1, -2


class Redirection(Struct, frozen=True):
    """Where an input comes from, or where an output goes. `text` is all of it, as written."""

    text: str
    operator: str
    target: str | None
    seen: str


class Command(Struct, frozen=True):
    """One simple command. A word that is not literal is None.

    `seen` is what the words may well become, quotes and codes undone. It is good for finding what
    is to be refused, and never for finding something harmless.
    """

    words: tuple[str | None, ...] = ()
    seen: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()
    redirections: tuple[Redirection, ...] = ()


class Script(Struct, frozen=True):
    """All simple commands in a text, in their order, wherever they stand.

    It is plain if they stand one after another between `;`, `&&`, `||`, pipes and line ends, and
    nothing else is there; `beyond` says what else there is.
    """

    commands: tuple[Command, ...]
    beyond: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        return not self.beyond


def parse(command: str) -> Script | None:
    """What the text says. None if it does not parse, or would take too long to."""
    cut = without_documents(command, keep=_COMMANDS_INSIDE)
    text = cut.replace("\\\n", "")
    try:
        source = text.encode()
    except UnicodeEncodeError:
        return None
    if b"\0" in source or work(text) > MOST_WORK:
        return None
    from tree_sitter import Parser

    tree = Parser(_language()).parse(source)
    if tree.root_node.has_error:
        return None
    reading = _Reading(source)
    reading.read(tree.root_node)
    beyond = reading.beyond
    if cut != command:
        # Whatever the grammar makes of it: what was taken out has not been judged.
        beyond.append(_NAMES["heredoc_redirect"])
    if text != cut:
        beyond.append("a continued line")
    if not beyond and not reading.tiled():
        beyond.append("something that shells read in different ways")
    return Script(tuple(reading.commands), tuple(dict.fromkeys(beyond)))


def work(text: str) -> int:
    """What it would cost to parse this."""
    source = text.encode(errors="replace")
    # What does not fit the grammar takes time that grows with its length times its signs, and most
    # for lists that are never closed. All else grows with the number of parts.
    signs = _count(_SIGNS, source) + 4 * source.count(b"=(")
    return len(source) * signs + 300 * _count(_PARTS, source)


def _count(what: re.Pattern[bytes], source: bytes) -> int:
    """As far as it matters how many there are."""
    return sum(1 for _ in islice(what.finditer(source), MOST_PARTS + 1))


def roughly(command: str) -> tuple[Command, ...] | None:
    """The commands in a text that does not parse, cut where a shell might cut it. None if there is
    too much of it even for that."""
    text = without_documents(command).replace("\\\n", "")
    if _count(_PARTS, text.encode(errors="replace")) > MOST_PARTS:
        return None
    pieces = map(_ROUGH_WORD.findall, _ROUGH.findall(text))
    found = (tuple(part for word in words for part in _guess(word)) for words in pieces)
    return tuple(Command(words=(None,) * len(seen), seen=seen) for seen in found if seen)


def without_documents(text: str, *, keep: re.Pattern[str] | None = None) -> str:
    """The text without the bodies of here-documents: they are data, often of hundreds of lines.

    One in which the shell would find what is to `keep` stays. This is a guess, as a sign may be
    quoted in ways that it does not see: what was cut is never taken for harmless.
    """
    if "<<" not in text:
        return text
    kept: list[str] = []
    end = 0
    for start, stop, expands in _documents(text):
        if not (expands and keep and keep.search(text, start, stop)):
            kept.append(text[end:start])
            end = stop
    return "".join((*kept, text[end:]))


def _documents(text: str) -> Iterator[tuple[int, int, bool]]:
    """Where each body begins and ends, and whether the shell looks into it."""
    waiting: list[tuple[str, bool, bool]] = []
    whole, at = f"{text}\n", 0
    for _ in range(_MOST_MARKS):
        found = _MARK.search(text, at)
        if found is None:
            return
        at = found.end()
        word = found["single"] or found["double"] or found["quoted"] or found["bare"]
        if word:
            waiting.append((word, bool(found["tabs"]), found["bare"] is not None))
        elif found["line"] and waiting:
            for last, tabs, expands in waiting:
                start, stop = at, _last_line(whole, at, last, tabs=tabs)
                if stop < 0:
                    return
                yield start, stop, expands
                at = whole.find("\n", stop) + 1
            waiting = []


def _last_line(text: str, start: int, word: str, *, tabs: bool) -> int:
    """Where the line begins that ends a document, or -1. The text ends with a line end."""
    if not tabs:
        return text.find(f"\n{word}\n", start - 1) + 1 or -1
    while (found := text.find(f"{word}\n", start)) >= 0:
        line = text.rfind("\n", 0, found) + 1
        if not text[line:found].strip("\t"):
            return line
        start = found + 1
    return -1


def literal(raw: str) -> str | None:
    """What a word is, as the shell will have it. None if that depends on anything."""
    if _INERT.fullmatch(raw):
        return raw
    if raw.startswith("#") or _TILDE.search(raw):
        return None
    pieces: list[str] = []
    end = 0
    while found := _PIECE.match(raw, end):
        end = found.end()
        quoted, single, double = found.groups()
        if double is not None:
            pieces.append(_UNDONE.sub(r"\1", double))
        else:
            pieces.append(next((text for text in (quoted, single) if text is not None), found[0]))
    return "".join(pieces) if raw and end == len(raw) else None


def _guess(raw: str) -> list[str]:
    """What a word may become. More than one word where it is split at $IFS."""
    if not _CHANGES.search(raw):
        return [raw]
    return [part for part in _SPLIT.split(_GUESS.sub(_undone, raw)) if part] or [""]


def _undone(found: re.Match[str]) -> str:
    coded, double, single, name, quoted = found.groups()
    if coded is not None:
        return _CODE.sub(_decoded, coded)
    if double is not None:
        return re.sub(r"\$\{(\w+)\}", r"$\1", _UNDONE.sub(r"\1", double))
    if name is not None:
        return f"${name}"
    return str(single if single is not None else quoted)


def _decoded(found: re.Match[str]) -> str:
    two, four, octal, letter = found.groups()
    if letter is not None:
        return _CODES.get(letter, str(letter))
    return chr(int(octal, 8) if octal else int(two or four, 16))


@cache
def _language() -> Language:
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


class _Reading:
    """One walk over a tree. It keeps a list of what is still to be seen, so depth costs nothing."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._ahead: list[Node | Command] = []
        #: Where each part begins and ends, and the number of the command whose word it is.
        self._parts: list[tuple[int, int, int]] = []
        self.commands: list[Command] = []
        self.beyond: list[str] = []

    def read(self, root: Node) -> None:
        self._ahead = [root]
        while self._ahead:
            part = self._ahead.pop()
            self.commands.append(part) if isinstance(part, Command) else self._visit(part)

    def tiled(self) -> bool:
        """Whether only blanks stand between the parts, and at least one between two words."""
        end, last = 0, _APART
        for start, after, owner in sorted(self._parts):
            gap = self._source[end:start]
            joined = not gap and (owner == _JOINS or owner == last >= 0)
            parted = b"\n" in gap and owner == last >= 0
            if joined or parted or start < end or gap.strip(b" \t\n"):
                return False
            end, last = after, owner
        return not self._source[end:].strip(b" \t\n")

    def _visit(self, node: Node) -> None:
        kind = node.type
        if kind == "command":
            self._command(node, [])
        elif kind == "redirected_statement":
            self._redirected(node)
        elif kind in _BUILTINS:
            self._beyond(node)
            words = self._text(node).split()
            self._add(Command((None,) * len(words), tuple(words)), node.children)
        elif kind == "variable_assignment":
            self._beyond(node)
            self._add(Command(assignments=(self._text(node),)), node.children)
        elif kind == "comment":
            self._comment(node)
        elif kind in _HOLDERS:
            self._ahead.extend(reversed(node.children))
        elif kind in _BETWEEN and not node.is_named:
            self._parts.append((node.start_byte, node.end_byte, _APART))
        else:
            self._beyond(node)
            self._ahead.extend(reversed(node.children))

    def _command(self, node: Node, outer: list[Node]) -> None:
        """A simple command, with redirections that the grammar has put inside it or around it."""
        number = len(self.commands)
        spans: list[tuple[int, int]] = []
        assignments: list[str] = []
        redirections: list[Redirection] = []
        inner: list[Node] = []
        for child in [*node.children, *outer]:
            if child.type in _REDIRECTS:
                redirections.append(self._redirection(child))
                inner.extend(child.children)
                continue
            start, end = child.start_byte, child.end_byte
            self._parts.append((start, end, number))
            if child.type == "variable_assignment":
                assignments.append(self._text(child))
                inner.extend(child.children)
                continue
            if spans and spans[-1][1] == start:
                # The grammar sees two words where no blank is.
                start = spans.pop()[0]
            spans.append((start, end))
            inner.append(child)
        words, seen = self._words(spans)
        whole = Command(words, seen, tuple(assignments), tuple(redirections))
        self._add(whole, inner if None in words or assignments or redirections else [])

    def _words(
        self, spans: list[tuple[int, int]]
    ) -> tuple[tuple[str | None, ...], tuple[str, ...]]:
        words: list[str | None] = []
        seen: list[str] = []
        for start, end in spans:
            raw = self._source[start:end].decode()
            word = literal(raw)
            words.append(word)
            seen.extend(_guess(raw) if word is None else [word])
        return tuple(words), tuple(seen)

    def _redirected(self, node: Node) -> None:
        body, *redirects = node.children
        if body.type == "command":
            self._command(body, redirects)
            return
        # A group, several commands or none: their redirections are a command without words. It comes
        # last, for in `cd a && cat < b` it is a/b that is read.
        if body.type in _REDIRECTS:
            body, redirects = redirects[0] if redirects else body, [body, *redirects]
        found = [self._redirection(each) for each in redirects if each.type in _REDIRECTS]
        if body.type not in _HOLDERS:
            self.beyond.append("a redirection of several commands")
        inner = [each for redirect in redirects for each in redirect.children]
        self._ahead.append(Command(redirections=tuple(found)))
        self._ahead.extend(reversed([*([] if body in redirects else [body]), *inner]))

    def _redirection(self, node: Node) -> Redirection:
        text = self._text(node)
        self._parts.append(
            (node.start_byte, node.end_byte, _JOINS if text[:1].isdigit() else _APART)
        )
        if node.type != "file_redirect":
            self._beyond(node)
            return Redirection(text, "<<", None, "")
        named = [child for child in node.children if child.type != "file_descriptor"]
        operator, *targets = named
        if len(targets) > 1:
            # To the shell the rest are words of the command.
            self.beyond.append("a word after a redirection")
        raw = self._text(targets[0]) if targets else ""
        word = literal(raw)
        seen = word if word is not None else _guess(raw)[0]
        return Redirection(text, operator.type, word, seen)

    def _comment(self, node: Node) -> None:
        """To the end of its line, and after a blank: else the shell may see none."""
        start, end = node.start_byte, node.end_byte
        before, after = self._source[start - 1 : start], self._source[end : end + 1]
        if (start and before not in b" \t\n") or after not in b"\n":
            self.beyond.append("something that shells read in different ways")
        self._parts.append((start, end, _APART))

    def _add(self, command: Command, inner: list[Node]) -> None:
        """Keep the command, and look for more inside its words."""
        self.commands.append(command)
        self._ahead.extend(each for each in reversed(inner) if each.child_count or each.is_named)

    def _beyond(self, node: Node) -> None:
        if node.is_named or node.type == "&":
            name = _NAMES.get(node.type)
            if name is not None:
                self.beyond.append(name)
            elif node.type not in _QUIET:
                self.beyond.append(f"a {node.type.replace('_', ' ')}")
        elif node.type == ";;":
            self.beyond.append("a case")

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode(errors="replace")


#: Parts of words: a word that is not literal says so itself.
_QUIET = frozenset(
    {"word", "string", "string_content", "raw_string", "concatenation", "number", "command_name"}
    | {"variable_name", "file_descriptor", "special_variable_name", "ansi_c_string", "do_group"}
    | {"heredoc_start", "heredoc_body", "heredoc_content", "heredoc_end", "test_operator"}
)
