"""``python -m luminal_onnx.models``: flags reach the builder, wrong ones are named."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from luminal_onnx.models import BUILDERS
from luminal_onnx.models.__main__ import main


def shapes(path) -> dict[str, list]:
    graph = onnx.load(path).graph
    return {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }


def test_bert_flags(tmp_path, capsys):
    path = tmp_path / "bert.onnx"
    arguments = "--layers 3 --hidden 24 --heads 3 --seq 9 --batch 2 --dtype float16 --vocab 50"
    assert main(["bert", "-o", str(path), *arguments.split()]) == 0
    assert shapes(path)["last_hidden_state"] == [2, 9, 24]
    model = onnx.load(path)
    assert sum(node.op_type == "Softmax" for node in model.graph.node) == 3
    assert model.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    assert "bert.onnx: bert" in capsys.readouterr().out


def test_dynamic_flag_names_the_dims(tmp_path):
    path = tmp_path / "llama.onnx"
    main(["llama", "-o", str(path), "--dynamic"])
    assert shapes(path)["attention_mask"] == ["batch", "past_sequence + sequence"]
    main(["digits", "-o", str(path), "--no-dynamic", "--batch", "4"])
    assert shapes(path)["image"] == [4, 1, 8, 8]


def test_resnet_blocks_and_full_size_with_an_override(tmp_path):
    path = tmp_path / "resnet.onnx"
    main(["resnet50", "-o", str(path), "--blocks", "1,2", "--image", "16"])
    assert sum(node.op_type == "Add" for node in onnx.load(path).graph.node) == 3
    main(["resnet50", "-o", str(path), "--full", "--width", "8", "--image", "64"])
    assert shapes(path) == {"pixel_values": [1, 3, 64, 64], "logits": [1, 1000]}


def test_trained_digits(tmp_path):
    path = tmp_path / "digits.onnx"
    main(["digits", "-o", str(path), "--trained"])
    assert any(entry.key == "accuracy" for entry in onnx.load(path).metadata_props)


def test_flags_of_the_newer_builders(tmp_path):
    path = tmp_path / "model.onnx"
    main(["dlrm", "-o", str(path), "--tables", "5", "--bag", "3", "--batch", "7"])
    assert shapes(path) == {"dense": [7, 13], "indices": [5, 7, 3], "probability": [7, 1]}
    main(["whisper_decoder", "-o", str(path), "--no-cached", "--dynamic", "--layers", "1"])
    assert shapes(path)["present.0.encoder.key"] == ["batch", 4, "encoder_sequence", 8]
    main(["vae", "-o", str(path), "--part", "encoder", "--widths", "4,8", "--image", "6"])
    assert shapes(path) == {"sample": [1, 3, 6, 6], "latent_parameters": [1, 8, 3, 3]}


def test_the_page_lists_every_builder():
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(BUILDERS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bert", "-o", "x.onnx", "--heads", "5"], "does not divide by 5 heads"),
        (["bert", "-o", "x.onnx", "--depth", "5"], "--depth"),
        (["gpt", "-o", "x.onnx"], "gpt"),
        (["bert"], "-o/--output"),
        (["digits", "-o", "x.onnx", "--trained", "--width", "8"], "--trained takes no size flags"),
        (["resnet50", "-o", "x.onnx", "--blocks", "a,b"], "blocks"),
    ],
)
def test_wrong_usage_exits_64_and_says_what_is_wrong(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 64
    assert message in capsys.readouterr().err


def test_runs_as_a_module(tmp_path):
    path = tmp_path / "bert.onnx"
    subprocess.run([sys.executable, "-m", "luminal_onnx.models", "bert", "-o", str(path)], check=True, timeout=60)
    onnx.checker.check_model(str(path))
