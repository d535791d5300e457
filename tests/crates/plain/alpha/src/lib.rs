mod part;

pymod::module!(PyInit_alpha, "alpha", format!("alpha-1 {} {}", part::PART, middle::WORD));
