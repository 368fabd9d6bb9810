"""The repository's address on the web: of the workflow that runs, or of git's remote. No file has it."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FORMS = r"(?:https://(?:[^/@]*@)?|ssh://(?:[^/@]*@)?|[\w.-]+@)(?P<host>[\w-]+(?:\.[\w-]+)+)(?::\d+(?=/))?[:/]"


def web(remote: str) -> str:
    """The address behind a remote by https or ssh, without user, password or port; empty for any other remote."""
    found = re.fullmatch(FORMS + r"(?P<path>[\w.-]+(?:/[\w.-]+)+)", remote.rstrip("/").removesuffix(".git"))
    return f"https://{found['host']}/{found['path']}" if found else ""


def repository() -> str:
    """The address of this repository; empty if it has none on the web."""
    if name := os.environ.get("GITHUB_REPOSITORY"):
        return web(f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}")
    command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    return web(subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip())


def site(url: str) -> str:
    """Where GitHub publishes the book of the repository with this address; empty if it is elsewhere."""
    host, owner, name = url.removeprefix("https://").split("/") if url.count("/") == 4 else ("", "", "")
    return f"https://{owner.lower()}.github.io/{name}" if host == "github.com" else ""
