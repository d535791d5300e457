const WORD: &str = if cfg!(feature = "loud") { "BETA-1" } else { "beta-1" };

pymod::module!(PyInit_beta, "beta", WORD.to_owned());
