"""`holdfast completion SHELL`: the script by which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_HOLDFAST_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands and options in SHELL.

    \b
    bash: source <(holdfast completion bash)     in ~/.bashrc
    zsh:  source <(holdfast completion zsh)      in ~/.zshrc
    fish: holdfast completion fish | source      in ~/.config/fish/config.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, "holdfast", _VARIABLE).source())
