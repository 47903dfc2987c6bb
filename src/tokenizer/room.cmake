target_link_libraries(doppler_tokenizer PRIVATE PkgConfig::PCRE2)
