//! Runs every target for a short time; see docs/reference/fuzzing.md.

use weft_fuzz::{TARGETS, driver};

macro_rules! run {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            run(stringify!($name));
        })*

        #[test]
        fn every_target_is_run() {
            let here = [$(stringify!($name)),*];
            let there: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(here.as_slice(), there);
        }
    };
}

run! {
    header hello_request key_claims hello_reply data_request data_reply meta_request meta_reply status_request status_reply
    delegate_request delegate_reply
    link sealed layout capability walk_proof cluster_file embedded_file key_file quantity pattern address target_identity datafile_name
    checksum_header checksum_slot compressed_header compressed_map compressed_chunk
    replica_mapping replica_state replica_plan
    metadata_row metadata_log metadata_dump metadata_sums metadata_identity
    fragments_journal fragments_identity handle_token wtrace trace_tail trace_csv darshan_dxt figures_file plan_file meta_service
}

fn run(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of that name");
    if let Some(file) = std::env::var_os("WEFT_FUZZ_INPUT") {
        let input = std::fs::read(&file).expect("the input can be read");
        println!("{name}: {:?}", (target.run)(&input));
        return;
    }
    driver::run_as_test(target);
}

#[test]
fn every_target_has_a_libfuzzer_program() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz");
    let manifest = std::fs::read_to_string(dir.join("Cargo.toml")).expect("fuzz/Cargo.toml");
    for target in TARGETS {
        let program = std::fs::read_to_string(dir.join(format!("fuzz_targets/{}.rs", target.name)));
        let program = program.unwrap_or_else(|error| panic!("fuzz/fuzz_targets/{}.rs: {error}", target.name));
        assert!(program.contains(&format!("weft_fuzz::targets::{}(", target.name)), "{program}");
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "[[bin]] {}", target.name);
    }
}
