const WORDS: &[&str] = &["deep-1"];

pub fn words() -> String {
    WORDS.join("+")
}

/// What is switched on in the crate that says this.
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
