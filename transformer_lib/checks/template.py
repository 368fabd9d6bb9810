# Generated from chapters/F_adapters.md: edit it there and `make export`, or here and `make sync`.

"""What `check --template` writes: an adapter to fill in, with what other people's models needed as comments."""

START = '''\
"""Put your model in. Then: python -m transformer_lib check mine:build --family FAMILY --no-training"""
# Behind it --max-len N, if it has a longest sequence. Heads are counted by n_heads, num_heads, nhead … of a module.

from my_model import MyModel  # your file, your class
from transformer_lib.checks import Adapted


def build(SIZES, pad_id):  # called many times: a new model each time
    # A few dozen channels and two layers are enough. If it asks for a device: device="cpu".
    # assert pad_id == 0  # its padding is always token 0, as with padding_idx=0: then all is tried with 0
    model = MyModel(MADE_OF)
    # model.pooler.requires_grad_(False)  # the logits do not need it; likewise a head for the next sentence

    def call(model, INPUTS):  # token ids, (batch, length), to logits, (batch, length, vocabulary)
        return model(INPUTS)
        # return model(INPUTS)[0]  # it returns a tuple
        # return model(INPUTS).logits  # it returns an object
        # return model(INPUTS, mask.to(next(model.parameters())))  # a mask of floats, with dtype and device right
'''
CASES = {
    "encoder": "        # return model(tokens, attention_mask=(tokens != pad_id).long())  # a mask: 1 = real\n",
    "decoder": "        # return model(tokens, tokens)[0]  # without targets it gives the last logits only\n",
    "encoder-decoder": """\
        # return model(source, target, source == pad_id, target == pad_id)  # it takes masks: True = padding
        # return model(source.T, target.T).transpose(0, 1)  # its tokens are (length, batch)
""",
}
MORE = """
    # What your model has of the following is examined, too: take "# " away, and name it in the last line,
    # as in Adapted(model, call, extend=extend). All this runs in evaluation mode, and in float64 if it can; loss,
    # generate and beams once in training mode, too: dropout is theirs to switch off. A cache that is returned may be a
    # new one, or the old one changed in place.
    #
    # def extend(model, INPUTS, cache=None):  # new tokens only; None is an empty cache
    #     return model(INPUTS, cache)  # their logits, and the cache with them
    #     # return model(INPUTS, LAST, cache=cache)  # without targets it gives the last logits only
    #
    # def extend(model, INPUTS, cache=None):  # the model keeps its cache itself: also one_cache=True
    #     if cache is None:
    #         model.reset_cache()
    #     return model(INPUTS, use_cache=True), "kept"  # anything but None
    #
    # def generate(model, INPUTS, steps):  # the tokens and so many more, each the most probable one
    #     return model.generate(INPUTS, steps, top_k=1)  # 50 is too much of 29 tokens; it must not stop at an end token
    #
    # def reorder(model, cache, rows):  # the cache of these rows of the batch, as a beam search picks them
    #     return [(k[rows], v[rows]) for k, v in cache]  # with one_cache: change the model's own, return "kept"
    #
    # def crop(model, cache, length):  # the cache of the first tokens, so many
    #     return [(k[:, :, :length], v[:, :, :length]) for k, v in cache]
    #
    # def beams(model, INPUTS, steps):  # a beam search, of any width: the best answer to each, as of generate, and
    #     return model.beam_search(INPUTS, steps)  # the sum of its log-probabilities, (batch), which is recomputed
    #
MASKS    # def loss(model, INPUTS, labels):  # its own, without other terms; labels of -100 do not count; a decoder may
    #     # take them for those of the same positions, or shift them by one itself
    #     return model(INPUTS, labels.masked_fill(labels == -100, -1))[1]  # if it has ignore_index=-1
"""
MASKS = """\
    # call, extend and generate may also take mask, (batch, length), 1 = real, 0 = padding; in extend it is of old and
    # new tokens. call and extend may take positions, (batch, length), of the tokens that they are given, so in extend
    # of the new ones. In generate the padding stands on the left, and only the new tokens of its answer are compared.
    #
"""
OF_ENCODER = """
    # call may also take, by these names, mask, which is 0 where padding stands, and positions, both (batch, length).
"""
END = "\n    return Adapted(model, call)\n"


def template(family: str) -> str:
    """The text of a file with a factory `build` for an "encoder", a "decoder" or an "encoder-decoder"."""
    both = family == "encoder-decoder"
    sizes, inputs = ("source_vocab_size, target_vocab_size", "source, target") if both else ("vocab_size", "tokens")
    made_of = sizes if family == "decoder" else f"{sizes}, pad_id"
    more = OF_ENCODER if family == "encoder" else MORE.replace("MASKS", "" if both else MASKS)
    text = START + CASES[family] + more + END
    words = {"FAMILY": family, "MADE_OF": made_of, "SIZES": sizes, "INPUTS": inputs, "LAST": inputs.split()[-1]}
    for name, word in words.items():
        text = text.replace(name, word)
    return text
