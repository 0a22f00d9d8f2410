"""What a `pipe:` url may say: arguments, and nothing that only a shell could do."""

from __future__ import annotations

import pytest

import samplerkit as sk
from samplerkit.compat.webdataset.commands import parsed

SHELL = {
    "a pipe": ("zcat a.tgz | head", "a pipe"),
    "a redirection": ("cat a.tar > b.tar", "a redirection"),
    "two commands": ("cat a.tar; rm a.tar", "several commands"),
    "the background": ("curl -s http://h/a.tar?x=1&y=2", "background"),
    "a variable": ("cat $HOME/a.tar", "a variable"),
    "a variable in quotes": ('cat "$HOME/a.tar"', "a variable"),
    "backticks": ("cat `ls`", "in its place"),
    "backticks in quotes": ('cat "`ls`"', "in its place"),
    "a subshell": ("(cat a.tar)", "subshell"),
    "two lines": ("cat a.tar\nrm a.tar", "several commands"),
    "a variable in front": ("A=b cat a.tar", "env"),
    "no command": ("", "no command"),
    "an open quote": ("cat 'a.tar", "quotes"),
}


@pytest.mark.parametrize(("command", "text"), SHELL.values(), ids=SHELL.keys())
def test_what_only_a_shell_could_do_is_refused(command, text):
    with pytest.raises(sk.ArgumentValueError, match=text):
        parsed(f"pipe:{command}")


def test_what_a_shell_would_do_in_quotes_is_part_of_an_argument():
    command = parsed(r"pipe:curl -s 'http://me:5f3a@h/a.tar?x=1&y=$2' a\|b ';'")
    assert command.arguments == ("curl", "-s", "http://me:5f3a@h/a.tar?x=1&y=$2", "a|b", ";")
    assert command.shown == "curl ... http://h/a.tar ..."
    assert "5f3a" not in repr(command)


def test_an_argument_may_be_longer_than_the_name_of_a_file():
    header = f"Authorization: Bearer {'5f3a' * 100}"
    command = parsed(f"pipe:curl -s -H '{header}' http://h/a.tar")
    assert command.arguments == ("curl", "-s", "-H", header, "http://h/a.tar")
    assert command.shown == "curl ... http://h/a.tar"
