"""`rule-detector sigma`: converts Sigma rules into a rules file."""

import click

from api.cli.messages import CommandError, counted
from api.cli.printing.terminal import on_one_line


@click.command(
    epilog="""\b
Examples:
  rule-detector sigma rules/windows > windows.yaml
  rule-detector sigma rules --keywords Message --logsource windows//security:Channel=Security > rules.yaml
"""
)
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR…", type=click.Path(exists=True))
@click.option(
    "--pipeline",
    "pipelines",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True),
    help="A pySigma processing pipeline (YAML) to apply to the rules, for example to rename fields. Can be "
    "repeated; pipelines are applied in the order of their priorities.",
)
@click.option(
    "--logsource",
    "logsources",
    metavar="SOURCE:FIELD=VALUE",
    multiple=True,
    help="The values of a field by which events of a log source are recognized. SOURCE is "
    "PRODUCT/CATEGORY/SERVICE; an empty part matches any. Separate several values with |. Can be repeated; "
    "all options for a rule's log source must hold. Without it, rules are tried on all events.",
)
@click.option(
    "--keywords",
    "keyword_fields",
    metavar="FIELD",
    multiple=True,
    help="A field in which rules without fields search for their keywords, instead of in all strings of an "
    "event. Can be repeated.",
)
@click.option("--strict", is_flag=True, help="Fail, and write nothing, if a rule cannot be converted.")
def sigma(
    paths: tuple[str, ...],
    pipelines: tuple[str, ...],
    logsources: tuple[str, ...],
    keyword_fields: tuple[str, ...],
    *,
    strict: bool,
) -> None:
    """Convert Sigma rules into a rules file, on standard output.

    Takes files, and all .yml and .yaml files of folders. Correlations become conditions that count and look
    back. Rules that cannot be converted are listed on standard error, each with the reason.

    Needs the packages of the extra `sigma`.
    """
    try:
        import sigma.collection  # noqa: PLC0415, F401 -- of the extra
    except ModuleNotFoundError:
        raise CommandError(
            "pySigma is missing; in a checkout, `pip install -c constraints.txt '.[sigma]'` installs it"
        ) from None
    from api.cli.sigma.conversion import Converter, rules_file  # noqa: PLC0415 -- imports pySigma
    from api.cli.sigma.detections import read_mapping  # noqa: PLC0415

    try:
        mappings = [read_mapping(each) for each in logsources]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--logsource") from None
    try:
        conversion = Converter(pipelines, mappings, keyword_fields).convert(paths)
    except OSError as error:
        raise CommandError(f"{error.filename}: {(error.strerror or str(error)).lower()}") from None
    left_out = conversion.left_out
    if not conversion.converted and not left_out:
        raise CommandError(f"no Sigma rules are in {', '.join(map(on_one_line, paths))}")
    for path, title, reason in left_out:
        click.echo(f"left out: {path}: {f'`{title}`: ' if title else ''}{reason}", err=True)
    inside = f", {conversion.inside_others} only inside correlations" if conversion.inside_others else ""
    summary = f"{counted(len(conversion.converted), 'rule')} converted, {len(left_out)} left out{inside}"
    if not conversion.converted or (strict and left_out):
        raise CommandError(summary)
    click.echo(summary, err=True)
    click.echo(rules_file(conversion.converted), nl=False)
