const WORDS: &[&str] = &["deep-1"];

pub fn words() -> String {
    WORDS.join("+")
}

/// Names of the cfgs and features that are on in the crate that expands this macro.
#[macro_export]
macro_rules! switches {
    () => {{
        let switches = [
            ("loud", cfg!(loud)),
            ("configured", cfg!(configured)),
            ("checked", cfg!(debug_assertions)),
            ("tall", cfg!(feature = "tall")),
            ("wide", cfg!(feature = "wide")),
        ];
        let on: Vec<&str> = switches.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
        format!("[{}]", on.join(","))
    }};
}
