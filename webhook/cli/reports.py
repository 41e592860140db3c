"""Structured results of commands that offer `-o json` and `-o yaml`."""

from __future__ import annotations

import click
import yaml

from webhook.cli.output import print_json


def print_structured(value: object, output: str) -> None:
    """Print plain values as JSON or as YAML."""
    if output == "json":
        print_json(value)
    else:
        click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)
