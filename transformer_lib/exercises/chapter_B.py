# Generated from chapters/B_files.md: edit it there and `make export`, or here and `make sync`.

"""The graders of the appendix on files."""

from transformer_lib.exercises.grading import Answer, claim


class _Folder:
    """A folder as it is, and all that a power cut may leave of it. A file is a number; a name is a name of a number."""

    def __init__(self, name: str, old: str | None) -> None:
        self.names = {} if old is None else {name: 0}
        self.stored = [self.names]  # the folder as it may be on the disk
        self.now = {0: old or ""}  # each file's content
        self.contents: dict[int, set[str | None]] = {0: {old}}  # what of it may be on the disk

    def do(self, kind: str, *words: str) -> None:
        """One step."""
        if kind == "write":
            name, data = words
            file = self.names.get(name, len(self.now))
            if name not in self.names:
                self.names = self.names | {name: file}
                self.stored.append(self.names)
            self.now[file] = data
            self.contents.setdefault(file, set()).update(data[:length] for length in range(len(data) + 1))
        elif kind == "flush":
            file = self.names[words[0]]
            self.contents[file] = {self.now[file]}
        elif kind == "rename":
            old, new = words
            if old.startswith("/") != new.startswith("/"):
                raise OSError("the system does not rename across file systems")
            names = dict(self.names)
            names[new] = names.pop(old)
            self.names = names
            self.stored.append(names)
        elif (kind, words) == ("flush names", ()):
            self.stored = [self.names]
        else:
            raise ValueError(f"there is no step {kind!r}")

    def left(self, name: str) -> set[str | None]:
        """What may be found under a name after a power cut: a content, or None for no such file."""
        return {content for names in self.stored for content in self.contents.get(names.get(name, -1), {None})}


def grade_B_1(answer: Answer) -> None:
    """The power fails after each step, in every way it can."""
    for name, data in (("a", "x"), ("notes.txt", "new")):
        steps = list(answer(name, data))
        for old in (None, "old"):
            folder, before = _Folder(name, old), "no file" if old is None else f"the file {old!r}"
            for number, step in enumerate(steps, start=1):
                folder.do(*step)
                bad = sorted(folder.left(name) - {old, data}, key=str)
                where = f"with {before} at the start, a power cut after step {number}"
                claim(f"{where} leaves the old content or the new, and not {bad[0] if bad else ''!r}", not bad)
            claim(f"with {before} at the start, the new content is safe in the end", folder.left(name) == {data})
            claim(f"only {name!r} is left, and not {sorted(folder.names)}", list(folder.names) == [name])


def grade_B_2(answer: Answer) -> None:
    """Every bit, every exchange of neighbours."""
    for data in (b"", b"a", b"ab", bytes(range(60, 120))):
        seal = answer(data)
        claim("a seal is 1 to 64 bytes", isinstance(seal, bytes) and 1 <= len(seal) <= 64)
        claim("the same bytes have the same seal", answer(data) == seal)
        damaged = {"a zero appended": data + b"\0"}
        if data:
            damaged["the last byte lost"] = data[:-1]
        for bit in range(8 * len(data)):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            damaged[f"bit {bit % 8} of byte {bit // 8} changed"] = bytes(changed)
        for n in range(len(data) - 1):
            damaged[f"bytes {n} and {n + 1} exchanged"] = data[:n] + data[n : n + 2][::-1] + data[n + 2 :]
        for damage, other in damaged.items():
            claim(f"{damage} changes the seal", answer(other) != seal)
