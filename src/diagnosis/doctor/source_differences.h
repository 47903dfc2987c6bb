// What differs between a model and its source, collected by the comparisons of description and weights.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "diagnosis/doctor/doctor_checks.h"
#include "diagnosis/doctor/settings.h"

namespace doppler::diagnosis::doctor {

// Findings of one cause are one, which names the first place and tells the others.
class Differences {
 public:
  explicit Differences(const Examination& e) : e_(e) {}
  ~Differences() = default;

  void add(Finding finding) {
    for (Finding& other : found_) {
      if (other.cause != finding.cause) continue;
      ++other.places;
      std::ranges::move(finding.fixes, std::back_inserter(other.fixes));
      return;
    }
    found_.push_back(std::move(finding));
  }
  // Gives each finding what sets its values to the source's.
  void set_values(const std::vector<SettingBetween>& settings) {
    for (const SettingBetween& setting : settings) {
      for (Finding& finding : found_) {
        if (finding.cause == setting.cause) finding.fixes.push_back(setting.fix);
      }
    }
  }
  void report() {
    for (Finding& finding : found_) e_.find(std::move(finding));
  }
  std::size_t count() const { return found_.size(); }

 private:
  const Examination& e_;
  std::vector<Finding> found_;
};

// doctor_source_weights.cpp: every weight beside the source's, and which way of reading it would make it
// equal.
Outcome compare_weights(const Examination& e, Differences& to);

}  // namespace doppler::diagnosis::doctor
