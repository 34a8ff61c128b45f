"""Baselines for tables, by scikit-learn: a linear model and gradient-boosted trees, with default settings."""

import numpy as np

MOST = 50_000  # rows they are fitted on, spread evenly over all


def learned_baselines(train: tuple[np.ndarray, np.ndarray], valid: tuple[np.ndarray, np.ndarray], numbers: bool
                      ) -> dict[str, float]:  # fmt: skip
    """The scores on `valid` of models fitted on features N F and targets N: accuracy, or R² of `numbers`."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    linear = Ridge() if numbers else LogisticRegression(max_iter=1000)
    trees = HistGradientBoostingRegressor if numbers else HistGradientBoostingClassifier
    models = {
        "a linear model": make_pipeline(StandardScaler(), linear),
        "gradient-boosted trees": trees(early_stopping=False, random_state=0),
    }
    features, targets = train
    rows = np.unique(np.linspace(0, len(targets) - 1, min(MOST, len(targets))).astype(int))
    return {name: float(model.fit(features[rows], targets[rows]).score(*valid)) for name, model in models.items()}
