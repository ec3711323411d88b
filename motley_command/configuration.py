"""Address and token of the service: from options, the environment or the configuration file, in this order."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

NAMES = {"url", "token", "team"}


class ConfigurationError(Exception):
    """Something is missing or wrong in the configuration; the message says where to correct it."""


@dataclass(frozen=True)
class Configuration:
    url: str
    token: str


def configuration(*, url: str | None, token: str | None, environ: Mapping[str, str] = os.environ) -> Configuration:
    """Address and token, each from the first source that has it."""
    path = configuration_file(environ)
    saved = read_file(path)
    return Configuration(
        url=whole_address(url or environ.get("MOTLEY_URL") or saved.get("url") or _missing("url", "address", path)),
        token=token or environ.get("MOTLEY_TOKEN") or saved.get("token") or _missing("token", "token", path),
    )


def configuration_file(environ: Mapping[str, str]) -> Path:
    """Path of the configuration file (XDG base directories)."""
    folder = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".config"
    return Path(folder) / "motley" / "config.yaml"


def read_file(path: Path) -> dict[str, str]:
    """The settings in the file; empty if there is no file."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"Cannot read {path}: {error}") from error
    if not isinstance(content, dict) or not content.keys() <= NAMES:
        known = ", ".join(f"`{name}: ...`" for name in sorted(NAMES))
        raise ConfigurationError(f"Invalid configuration file {path}: it may contain only {known}.")
    given = {name: value for name, value in content.items() if value is not None}
    if wrong := [name for name, value in given.items() if not isinstance(value, str)]:
        raise ConfigurationError(f"Invalid configuration file {path}: {wrong[0]} must be a text.")
    return given


def default_team(environ: Mapping[str, str] = os.environ) -> str:
    """Team of new jobs that name none: `MOTLEY_TEAM`, or that of the file; empty: the service chooses the only one."""
    return environ.get("MOTLEY_TEAM") or read_file(configuration_file(environ)).get("team", "")


def write_file(path: Path, settings: Mapping[str, str]) -> None:
    """Write the settings to a file that only its owner can read; empty ones are left out."""
    kept = {name: value for name, value in settings.items() if value}
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A new file replaces the old one: a process that has the old one open cannot read the new token.
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            yaml.safe_dump(kept, file, sort_keys=False)
        fresh.replace(path)
    except OSError as error:
        raise ConfigurationError(f"Cannot write {path}: {error}") from error
    finally:
        fresh.unlink(missing_ok=True)


def whole_address(url: str) -> str:
    """The address, which must have its scheme."""
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"Invalid address {url}: it must begin with http:// or https://, e.g. http://{url}.")
    return url


def _missing(name: str, word: str, path: Path) -> str:
    raise ConfigurationError(
        f"No {word} is configured: use --{name}, set MOTLEY_{name.upper()}, or run motley login, "
        f"which saves it in {path}."
    )
