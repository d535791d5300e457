pyo3::module!(PyInit_alpha, "alpha", "stable-1".to_owned());
