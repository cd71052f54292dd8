from loom_common.features import Feature, features_markdown


def test_the_manual_says_what_each_feature_is():
    page = features_markdown()
    for feature in Feature:
        assert f"| `{feature.value}` | {feature.meaning} |" in page
    assert "| `memory.search` |" in page
