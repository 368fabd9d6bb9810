"""Forty small pairs, and a preset that trains on them within a blink."""

ENGLISH = ["a dog runs", "a cat sleeps", "the man sees a dog", "the old cat", "a woman reads"] * 8
GERMAN = ["ein Hund läuft", "eine Katze schläft", "der Mann sieht einen Hund", "die alte Katze", "eine Frau liest"] * 8
MICRO = {
    "model": {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_encoder_layers": 1, "num_decoder_layers": 1,
              "dropout": 0.1, "norm_first": True, "tie_embeddings": "all"},
    "training": {"batch_tokens": 128, "peak_lr": 5e-3, "warmup_steps": 2},
    "tokenizer": {"vocab_size": 300},
}  # fmt: skip
