from loom_common.features import Feature, features_markdown, is_feature


def test_operations_and_listed_workers_are_features_and_nothing_else_is():
    assert is_feature("memory.search")
    assert is_feature(Feature.SYSTEM_EMBEDDER_PROBE)
    assert not is_feature("memory.nothing")


def test_the_manual_says_what_each_feature_is():
    page = features_markdown()
    for feature in Feature:
        assert f"| `{feature.value}` | {feature.meaning} |" in page
    assert "| `memory.search` |" in page
