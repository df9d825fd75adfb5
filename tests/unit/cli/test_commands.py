"""The group of all commands imports only the one that is used."""

import subprocess
import sys

import click
import pytest

from api.cli import COMMANDS, main


def test_each_command_is_found_by_its_own_name() -> None:
    context = click.Context(main)
    names = [name for named in COMMANDS.values() for name in named]
    assert main.list_commands(context) == names
    for name in names:
        command = main.get_command(context, name)
        assert command is not None
        assert command.name == name


@pytest.mark.slow
def test_a_command_does_not_import_the_others() -> None:
    script = "import sys; from api.cli import main; main(['check', '--help'], standalone_mode=False); "
    said = "print(*(name for name in sys.modules if name.startswith('api.cli.')), file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", script + said], capture_output=True, text=True, check=True)
    assert "api.cli.check" in run.stderr.split()
    assert not {"api.cli.running.serve", "api.cli.sigma.command"} & {*run.stderr.split()}
