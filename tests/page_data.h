// What every page keeps to, and the data in it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"

namespace doppler::testing {

// The object that a page's program reads; null if it is not there or no JSON.
inline Json page_data(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const std::size_t found = page.find(open), begin = found + open.size();
  if (found == std::string::npos) return nullptr;
  const Json data = Json::parse(page.substr(begin, page.find("</script>", begin) - begin), nullptr, false);
  return data.is_discarded() ? Json(nullptr) : data;
}

// It is whole, asks nobody for anything, has a verdict and data, and no text has become markup.
inline void expect_page_alone(const std::string& page) {
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(page.ends_with("</html>\n"));
  for (const char* outside :
       {"http:", "https:", "src=", "@import", "url(", "fetch(", "XMLHttpRequest", "<link", "import("}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  for (const char* mark : {"{style}", "{script}", "{script-hash}", "{title}", "{verdict}", "{word}",
                           "{outcome}", "{body}", "{facts}", "{more}", "{kind}"})
    EXPECT_EQ(page.find(mark), std::string::npos) << mark;
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_EQ(page.find("<!--"), std::string::npos);
  EXPECT_NE(page.find("<div id=\"verdict\" class="), std::string::npos);
  EXPECT_TRUE(page_data(page).is_object());
}

}  // namespace doppler::testing
