"""Every builder's model is valid, runs in the reference runtime, and answers differently to different inputs."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from luminal_onnx.models import BUILDERS, bert, resnet50, sample_inputs, save, whisper_decoder
from tolerances import LEAST_SPREAD, MODEL, assert_close

VARIANTS = {
    **{f"{name}-{dtype}": (name, {"dtype": dtype}) for name in BUILDERS for dtype in ("float32", "float16")},
    **{f"{name}-dynamic": (name, {"dynamic": True}) for name in BUILDERS},
    "bert-decomposed": ("bert", {"decompose_layernorm": True}),
    "bert-opset18-decomposed": ("bert", {"opset": 18, "decompose_layernorm": True}),
    "bert-one-layer-odd": ("bert", {"layers": 1, "hidden": 21, "heads": 3, "seq": 7, "intermediate": 13, "batch": 3}),
    "llama-opset18": ("llama", {"opset": 18}),
    "llama-no-past": ("llama", {"past": 0}),
    "llama-multi-head": ("llama", {"kv_heads": 4, "batch": 2}),
    "llama-f16-dynamic": ("llama", {"dtype": "float16", "dynamic": True}),
    "resnet-two-stages": ("resnet50", {"blocks": (2, 3), "width": 4, "image": 17, "classes": 3, "batch": 2}),
    "digits-static": ("digits", {"dynamic": False, "batch": 3}),
    "dlrm-deep": ("dlrm", {"tables": 5, "bag": 1, "bottom": (8, 6), "top": (), "batch": 2}),
    "gpt2-no-past": ("gpt2", {"past": 0, "batch": 2}),
    "mobilenetv2-seven-stages": ("mobilenetv2", {"blocks": (1,) * 7, "image": 33, "width": 16}),
    "qwen3_moe-dense": ("qwen3_moe", {"routing": "dense"}),
    "qwen3_moe-dense-dynamic": ("qwen3_moe", {"routing": "dense", "dynamic": True}),
    "unet-three-levels": ("unet", {"widths": (4, 8, 12), "image": 8}),
    "vae-encoder": ("vae", {"part": "encoder"}),
    "vae-encoder-f16-dynamic": ("vae", {"part": "encoder", "dtype": "float16", "dynamic": True}),
    "vae-three-resolutions": ("vae", {"widths": (4, 8, 8), "blocks": 2, "batch": 2}),
    "vit-eager": ("vit", {"attention": "eager"}),
    "vit-f16-dynamic": ("vit", {"dtype": "float16", "dynamic": True}),
    "whisper_decoder-first-step": ("whisper_decoder", {"cached": False}),
    "whisper_decoder-first-step-dynamic": ("whisper_decoder", {"cached": False, "dynamic": True}),
    "whisper_encoder-odd": ("whisper_encoder", {"frames": 13, "layers": 1, "batch": 3}),
}
WITH_CACHE = [
    {"batch": 1, "sequence": 6, "past_sequence": 0},
    {"batch": 3, "sequence": 1, "past_sequence": 11},
    {"batch": 2, "sequence": 5, "past_sequence": 17},
]
DYNAMIC_DIMS = {
    "bert": [{"batch": 1, "sequence": 1}, {"batch": 3, "sequence": 7}, {"batch": 2, "sequence": 40}],
    "digits": [{"batch": 1}, {"batch": 5}, {"batch": 32}],
    "dlrm": [{"batch": 1}, {"batch": 7}, {"batch": 64}],
    "gpt2": WITH_CACHE,
    "llama": WITH_CACHE,
    "mobilenetv2": [{"batch": 1}, {"batch": 2, "height": 17, "width": 40}, {"batch": 3, "height": 5, "width": 8}],
    "qwen3_moe": WITH_CACHE,
    "resnet50": [{"batch": 1}, {"batch": 3}, {"batch": 5}],
    "unet": [
        {"batch": 1, "height": 2, "width": 6, "sequence": 1},
        {"batch": 3, "height": 8, "width": 4, "sequence": 7},
    ],
    "vae": [{"batch": 1, "latent_height": 1, "latent_width": 3}, {"batch": 2, "latent_height": 5, "latent_width": 4}],
    "vit": [{"batch": 1}, {"batch": 4}],
    "whisper_decoder": [{**dims, "encoder_sequence": 5 * dims["batch"]} for dims in WITH_CACHE],
    "whisper_encoder": [{"batch": 1, "frames": 1}, {"batch": 3, "frames": 13}, {"batch": 2, "frames": 40}],
}


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


@pytest.mark.parametrize("variant", VARIANTS)
def test_model_is_valid_and_its_outputs_are_near_one_and_vary(variant):
    name, flags = VARIANTS[variant]
    model = BUILDERS[name].build(**flags)
    onnx.checker.check_model(model, full_check=True)
    run = session(model)
    results = [run.run(None, sample_inputs(model, seed)) for seed in range(4)]
    for index, output in enumerate(run.get_outputs()):
        values = np.stack([result[index] for result in results]).astype(np.float64)
        assert np.isfinite(values).all()
        peak = np.abs(values).max()
        assert 0.1 < peak < 20, f"{output.name}: peak is {peak}"
        # From input to input, not merely along an output's own axes.
        spread = np.ptp(values, axis=0).mean()
        assert spread > max(10 * LEAST_SPREAD, 0.02) * peak, f"{output.name}: spread {spread}, peak {peak}"


@pytest.mark.parametrize("name", BUILDERS)
def test_equal_flags_give_equal_bytes_and_seeds_give_other_weights(name):
    build = BUILDERS[name].build
    assert build(seed=3).SerializeToString(deterministic=True) == build(seed=3).SerializeToString(deterministic=True)
    one, other = build(seed=3), build(seed=4)
    feeds = sample_inputs(one, 0)
    assert np.abs(session(one).run(None, feeds)[0] - session(other).run(None, feeds)[0]).max() > 0.02


@pytest.mark.parametrize("name", BUILDERS)
def test_dynamic_model_runs_at_several_shapes(name):
    model = BUILDERS[name].build(dynamic=True)
    run = session(model)
    for dims in DYNAMIC_DIMS[name]:
        feeds = sample_inputs(model, 1, dims)
        for output, value in zip(run.get_outputs(), run.run(None, feeds), strict=True):
            assert value.shape[0] == dims["batch"], output.name
            assert np.isfinite(value).all(), output.name


@pytest.mark.parametrize("name", BUILDERS)
def test_dynamic_and_static_spellings_agree(name):
    static, dynamic = BUILDERS[name].build(dynamic=False), BUILDERS[name].build(dynamic=True)
    feeds = sample_inputs(static, 5)
    for got, want in zip(session(dynamic).run(None, feeds), session(static).run(None, feeds), strict=True):
        assert_close(got, want, MODEL)


def test_decomposed_layer_norm_agrees_with_the_operator():
    plain, decomposed = bert.build(), bert.build(decompose_layernorm=True)
    assert "LayerNormalization" in {node.op_type for node in plain.graph.node}
    assert "LayerNormalization" not in {node.op_type for node in decomposed.graph.node}
    feeds = sample_inputs(plain, 0)
    for got, want in zip(session(decomposed).run(None, feeds), session(plain).run(None, feeds), strict=True):
        assert_close(got, want, MODEL)


def test_bert_ignores_masked_tokens():
    model = bert.build()
    run = session(model)
    feeds = sample_inputs(model, 0)
    feeds["attention_mask"] = (np.arange(16) < 10).astype(np.int64)[None]
    before = run.run(None, feeds)[0]
    feeds["input_ids"][:, 10:] = (feeds["input_ids"][:, 10:] + 1) % 100
    after = run.run(None, feeds)[0]
    assert_close(after[:, :10], before[:, :10], MODEL)
    assert np.abs(after[:, 10:] - before[:, 10:]).max() > 0.1


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3_moe"])
def test_decoder_with_cache_equals_decoder_without(name):
    """Six tokens at once give the logits of four, then two with the four in the cache."""
    model = BUILDERS[name].build(dynamic=True)
    run = session(model)
    names = [output.name for output in run.get_outputs()]
    feeds = sample_inputs(model, 2, {"batch": 1, "sequence": 6, "past_sequence": 0})
    empty = {key: value for key, value in feeds.items() if key.startswith("past_key_values")}

    def step(start: int, end: int, cache: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        tokens = {
            "input_ids": feeds["input_ids"][:, start:end],
            "position_ids": np.arange(start, end)[None],
            "attention_mask": np.ones((1, end), np.int64),
        }
        return dict(zip(names, run.run(None, tokens | cache), strict=True))

    whole = step(0, 6, empty)
    first = step(0, 4, empty)
    cache = {name: first[name.replace("past_key_values", "present")] for name in empty}
    second = step(4, 6, cache)
    assert_close(np.concatenate([first["logits"], second["logits"]], axis=1), whole["logits"], MODEL)


def test_whisper_steps_continue_each_other():
    """Five tokens in the first step give the logits of three, then two that read both caches."""
    opening = whisper_decoder.build(dynamic=True, cached=False)
    feeds = sample_inputs(opening, 3, {"batch": 2, "sequence": 5, "encoder_sequence": 7})
    first, later = session(opening), session(whisper_decoder.build(dynamic=True))
    names = [output.name for output in first.get_outputs()]
    whole = first.run(["logits"], feeds)[0]
    begun = dict(zip(names, first.run(None, feeds | {"input_ids": feeds["input_ids"][:, :3]}), strict=True))
    caches = {
        value.name: begun[value.name.replace("past_key_values", "present")]
        for value in later.get_inputs()
        if value.name.startswith("past_key_values")
    }
    logits = later.run(["logits"], {"input_ids": feeds["input_ids"][:, 3:], **caches})[0]
    assert_close(np.concatenate([begun["logits"], logits], axis=1), whole, MODEL)


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("qwen3_moe", {"routing": "gather"}, {"routing": "dense"}),
        ("vit", {"attention": "sdpa"}, {"attention": "eager"}),
    ],
)
def test_spellings_agree(name, one, other):
    build = BUILDERS[name].build
    first, second = build(dynamic=True, **one), build(dynamic=True, **other)
    feeds = sample_inputs(first, 0)
    for got, want in zip(session(first).run(None, feeds), session(second).run(None, feeds), strict=True):
        assert_close(got, want, MODEL)


def test_resnet_activations_stay_near_one_at_full_depth():
    """Fifty layers, narrow: the statistics of BatchNormalization keep images apart down to the logits."""
    model = resnet50.build(blocks=resnet50.FULL["blocks"], width=8, image=64)
    convolutions = sum(node.op_type == "Conv" for node in model.graph.node)
    assert convolutions == 53
    last = [node.output[0] for node in model.graph.node if node.op_type == "Add"][-1]
    model.graph.output.add(name=last)
    run = session(model)
    logits, features = (np.stack(values) for values in zip(*(run.run(None, sample_inputs(model, k)) for k in range(4))))
    assert 0.3 < features.std() < 5
    assert np.ptp(logits, axis=0).mean() > 0.3


def test_model_with_external_weights_reads_back_equal(tmp_path):
    model = bert.build()
    path = save(model, tmp_path / "bert.onnx", external=True)
    assert (tmp_path / "bert.onnx.data").stat().st_size > 3 * path.stat().st_size
    onnx.checker.check_model(str(path), full_check=True)
    loaded = onnx.load(path)
    original = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert all(np.array_equal(onnx.numpy_helper.to_array(t), original[t.name]) for t in loaded.graph.initializer)
    assert loaded.graph.node == model.graph.node
    feeds = sample_inputs(model, 0)
    assert_close(onnxruntime.InferenceSession(path).run(None, feeds)[0], session(model).run(None, feeds)[0], MODEL)


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        ("bert", {"heads": 5}, "does not divide by 5 heads"),
        ("bert", {"seq": 600}, "exceeds max_positions 512"),
        ("llama", {"kv_heads": 3}, "do not divide by 3 kv_heads"),
        ("llama", {"hidden": 60}, "head width 15 is odd"),
        ("resnet50", {"image": 16}, "at least 32"),
        ("resnet50", {"blocks": ()}, "expected 1 or more"),
        ("digits", {"dtype": "int8"}, "expected float32 or float16"),
        ("bert", {"opset": 16}, "need 17 or later"),
        ("bert", {"layers": 0}, "layers is 0"),
        ("digits", {"weights": {}}, "'conv1.weight' is missing"),
        ("dlrm", {"top": (4, 0)}, r"top is \(4, 0\)"),
        ("gpt2", {"past": 126, "seq": 4}, "exceeds max_positions 128"),
        ("mobilenetv2", {"blocks": (1,) * 8}, "up to 7 numbers"),
        ("qwen3_moe", {"chosen": 7}, "there are 6 experts"),
        ("qwen3_moe", {"routing": "loop"}, "expected gather or dense"),
        ("unet", {"widths": (6, 8)}, "multiples of 4 groups"),
        ("unet", {"image": 7}, "does not divide by 2"),
        ("vae", {"part": "middle"}, "expected decoder or encoder"),
        ("vit", {"patch": 5}, "does not divide by patches of 5"),
        ("whisper_decoder", {"heads": 5}, "does not divide by 5 heads"),
        ("whisper_encoder", {"frames": 3001}, "exceed 1500 positions"),
    ],
)
def test_impossible_sizes_are_refused(name, flags, message):
    with pytest.raises(ValueError, match=message):
        BUILDERS[name].build(**flags)


def test_sample_inputs_name_a_dim_without_a_size():
    model = bert.build(dynamic=True)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "tokens"
    with pytest.raises(ValueError, match="'input_ids' has dim 'tokens'"):
        sample_inputs(model)
