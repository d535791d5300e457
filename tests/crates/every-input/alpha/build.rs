fn main() {
    println!("cargo::rerun-if-changed=data/number.txt");
    let number = std::fs::read_to_string("data/number.txt").expect("data/number.txt");
    println!("cargo::rustc-env=MADE={}-{}", maker::WORD, number.trim());
}
