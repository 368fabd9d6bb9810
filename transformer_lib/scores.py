# Generated from chapters/11a_toy_grammar.md: edit it there and `make export`, or here and `make sync`.

"""Scores of translations: BLEU, chrF and TER, as sacrebleu counts them."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from transformer_lib.data.corpora import texts_of
from transformer_lib.files import InputError

TOKENIZERS = {  # of sacrebleu, and what has to be installed for them
    "13a": "", "intl": "", "zh": "", "char": "", "ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]",
    "flores101": "sentencepiece", "flores200": "sentencepiece",
}  # fmt: skip


def bleu_with(tokenize: str) -> Any:
    """The BLEU of sacrebleu that cuts sentences in this way, a key of `TOKENIZERS`.

    Raises:
        InputError: a package is missing, or the tokenizer cannot be downloaded.
        ValueError: there is no such tokenizer.
    """
    import sacrebleu  # here, so that importing the library stays fast

    if tokenize not in TOKENIZERS:
        raise ValueError(f"unknown tokenizer {tokenize!r}; expected one of {', '.join(TOKENIZERS)}")
    try:
        return sacrebleu.BLEU(tokenize=tokenize)
    except (ImportError, RuntimeError) as error:
        needed = f'expected the package that it needs: run pip install "{TOKENIZERS[tokenize]}"'
        raise InputError(f"the tokenizer {tokenize} is not installed; {needed}") from error
    except OSError as error:
        reason = f"{error}; expected to download it once: try again, or choose another tokenizer"
        raise InputError(f"the tokenizer {tokenize} cannot be loaded: {reason}") from error


def _warn_of_words(references: Sequence[str], bleu: Any, tokenize: str) -> None:
    """Warn where BLEU counts words and there are none, or no four in a row."""
    words, letters = [text.split() for text in references if text.strip()], sum(map(len, references))
    alone = sum(len(row) == 1 for row in words)  # lines without a space
    remedy = "another tokenizer (--tokenize zh, ja-mecab or char)"
    if tokenize in ("13a", "intl") and (letters > 12 * sum(map(len, words)) or 2 * alone > len(words)):
        why = f"{alone} of {len(words)} have none; expected words between spaces: give {remedy}"
        warnings.warn(f"the references hardly have spaces: {why}", stacklevel=3)
    elif not any(len(bleu.tokenizer(text).split()) > 3 for text in references):
        why = f"expected some, since BLEU counts four in a row and is 0 without: read chrF, or give {remedy}"
        warnings.warn(f"no reference has four words or signs; {why}", stacklevel=3)


def papers_form(sentences: Iterable[str], language: str) -> list[str]:
    """Sentences as papers score them: in NFC, lower-cased, punctuation normalised, cut into tokens as Moses does.

    Args:
        sentences: of any form.
        language: "en" or "de", say: whose abbreviations keep their full stop.

    Returns:
        One string each, with spaces between the tokens; Multi30k's own lc.norm.tok files come out line by line.

    Raises:
        InputError: sacremoses is not installed.
    """
    try:
        from sacremoses import MosesPunctNormalizer, MosesTokenizer  # here, because only this protocol needs it
    except ImportError as error:
        raise InputError("the papers' protocol needs sacremoses: run `pip install sacremoses`") from error
    normalise, tokenise = MosesPunctNormalizer(language).normalize, MosesTokenizer(language).tokenize
    return [tokenise(normalise(text.lower()), return_str=True) for text in in_nfc(sentences)]


def in_nfc(sentences: Iterable[str]) -> list[str]:
    """Sentences in the normal form of every translation, in which a letter and its accent are one sign if they can."""
    return [unicodedata.normalize("NFC", text) for text in texts_of(sentences)]


def evaluate_bleu(
    hypotheses: Iterable[str], references: Iterable[str], *, papers: str | None = None, tokenize: str = "13a"
) -> dict[str, float | str]:
    """Score translations of a test set: BLEU (Papineni et al. 2002), chrF (Popović 2015) and TER (Snover et al. 2006).

    BLEU and chrF are cased, TER is not. sacrebleu computes all three, with its defaults, of both sides in NFC.

    Args:
        hypotheses: the translations, not cut into tokens.
        references: one reference each.
        papers: score by the papers' protocol, both sides in their `papers_form` of this language, "de" for example.
        tokenize: how BLEU cuts sentences, one of `TOKENIZERS`; "zh", "ja-mecab" or "char" for text without spaces. TER
            counts what stands between spaces.

    Returns:
        "bleu" and "chrf" between 0 and 100; "ter", edits for each hundred words of the references, of which fewer are
        better; "signature" and "chrf_signature" say how BLEU and chrF were computed (Post 2018).

    Raises:
        InputError: sacremoses or the tokenizer is not installed.
        TypeError: one of them is one string, or nested, or something in it is no string.
        ValueError: there are not as many translations as references, or none at all, or there is no such tokenizer.
    """
    import sacrebleu  # here, so that importing the library stays fast

    chrf, ours, theirs = sacrebleu.CHRF(), in_nfc(hypotheses), in_nfc(references)
    if len(ours) != len(theirs) or not theirs:
        raise ValueError(f"expected one reference a translation; got {len(ours)} and {len(theirs)}")
    if papers is None:
        bleu = bleu_with(tokenize)
        _warn_of_words(theirs, bleu, tokenize)
    else:
        bleu = sacrebleu.BLEU(tokenize="none", force=True)  # force: yes, they have been cut into tokens
        ours, theirs = papers_form(ours, papers), papers_form(theirs, papers)
    return {
        "bleu": min(bleu.corpus_score(ours, [theirs]).score, 100.0),  # rounding may exceed it
        "chrf": chrf.corpus_score(ours, [theirs]).score,
        "ter": sacrebleu.TER().corpus_score(ours, [theirs]).score,
        "signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
    }
