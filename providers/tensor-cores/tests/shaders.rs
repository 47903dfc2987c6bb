//! Gives every text in the folder DOPPLER_SHADER_TEXTS to the shader compiler, with all that this library switches on: kernels
//! for matrices that no adapter at hand has are read, checked and written as SPIR-V all the same.
use naga::valid::{Capabilities, ValidationFlags, Validator};

fn compile(text: &str) -> Result<Vec<u32>, String> {
    let module = naga::front::wgsl::parse_str(text).map_err(|e| e.emit_to_string(text))?;
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    validator.subgroup_stages(naga::valid::ShaderStages::COMPUTE);
    validator.subgroup_operations(naga::valid::SubgroupOperationSet::all());
    let info = validator.validate(&module).map_err(|e| e.emit_to_string(text))?;
    let options = naga::back::spv::Options { lang_version: (1, 4), ..Default::default() };
    let pipeline =
        naga::back::spv::PipelineOptions { shader_stage: naga::ShaderStage::Compute, entry_point: "main".into() };
    naga::back::spv::write_vec(&module, &info, &options, Some(&pipeline)).map_err(|e| e.to_string())
}

#[test]
fn every_text_compiles() {
    let Ok(folder) = std::env::var("DOPPLER_SHADER_TEXTS") else { return };
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "wgsl") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let words = compile(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        std::fs::write(path.with_extension("spv"), bytes).unwrap();
        count += 1;
    }
    assert!(count > 0, "there are no texts");
}
