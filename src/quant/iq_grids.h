// The grids of the IQ types: which combinations of magnitudes a group of values may have. They are facts of
// the format, chosen once by its authors from measured weights; no formula gives them.
//
// A grid is a rising list of numbers whose digits, lowest first, name the levels of the values of a group
// (base 3 for groups of eight, base 8 for groups of four). Its text stores the gaps between neighbours: a
// character from ']' on skips 0, 1, 2, ... numbers and takes the next, '~' skips 33 and takes none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace doppler {

template <std::size_t kEntries, std::size_t kGroup, std::size_t kLevels>
using IqGrid = std::array<std::array<std::int8_t, kGroup>, kEntries>;

template <std::size_t kEntries, std::size_t kGroup, std::size_t kLevels>
consteval IqGrid<kEntries, kGroup, kLevels> unpack_grid(const std::array<std::int8_t, kLevels>& levels,
                                                        std::string_view gaps) {
  constexpr char kFirst = ']', kSkip = '~';
  IqGrid<kEntries, kGroup, kLevels> grid{};
  std::size_t number = 0, entry = 0;
  for (const char gap : gaps) {
    number += static_cast<std::size_t>(gap - kFirst);
    if (gap == kSkip) continue;
    std::size_t digits = number++;
    for (std::size_t i = 0; i < kGroup; ++i) {
      grid[entry][i] = levels[digits % kLevels];
      digits /= kLevels;
    }
    ++entry;
  }
  // An index beyond the grid would not compile; a grid that is too short does not either, since this is no
  // constant.
  if (entry != kEntries) std::unreachable();
  return grid;
}

inline constexpr std::array<std::int8_t, 3> kIQ2Levels = {8, 25, 43};

// IQ2_XXS
inline constexpr auto kIQ2XXSGrid = unpack_grid<256, 8>(
    kIQ2Levels,
    "]^^^^^^b^`^^^bb`^b^bhd^b`jzhh^n~_v^bf^b^`hf^bhb^`hjp^ft^nznb`^bh`^b^rtt~sf~~`^bfdnhb`jbhndf~kf~mbh`h"
    "p~e|~]j~~^^bnxv`~~^~i~g^brld^~md~k^~~j^bnj~cxp~~zth~k~~~w~o^bb`^bbd`f^bnnxd`tdtdfzbh~_lrf~w~~l^bn`~m"
    "~e`f~s|nb`b^~_btv~i~~`~~j^t~~d~a~efb|~w~w~~hbntz~c~sz~_`~~p^~i~~~~^~~~~~~l^bpxxhh~{~~b^b`jn~_|~]rpn~"
    "a~~l~~r~~dbhb~ir~c~u~mpf~~r~~~~~k~g~~~~j~]rz~~d~~z~~~~~~~}~k");

// IQ2_XS
inline constexpr auto kIQ2XSGrid = unpack_grid<512, 8>(
    kIQ2Levels,
    "]^^^^^^^^^^^^`^^^^^^^`^b^^^`^`^f^^^^^^^^^^b^^^`^bb`^bn^^^`^bf^b`jdp^^^^^^^`^b^^^`^^`f^bn^^^`^bf^bfdx"
    "^bj`^xt^^^^^^b`b^bbhnd^^bnxbpnb~g`f^^^^^^^`^b^^^`^bd^^bn^^^`^bf^bnh^j^^`nn~_^^^`^bf^`^hbx^bn~qhr~k^b"
    "^lhpr`~i~~^~e^^^^^^^bf^bnnf^bnbl|p~]t`^bl^~qxf|hl~w`b^frpj~uhth~a`^p^^^^^^^`^b^^^^^^b`b^bn^^^`^bf^bn"
    "`ld^b^j^~q^^^`^`^f^bnhl^bhb~gfdrb~i^bn`dd~]fpbl|~~h^^^`^bb`^bnx^b`j^~oz~m^^bfdnfndb~kb~c|rdhld~]xf^~"
    "~~gt^bnhdhp^~~~_jzlj~~fn`~g~~r~o~m~{~]d~]^^^`^bd^^bn^r^^^^`nfb~an~_^lb`^b^^jnlpz~ip~axblrf^rd~~z~]bd"
    "f`^bnjltpx~~dpp`vbb~{~a^~g~~t~c~a~w|~_^`^fd~i~ib~]`^`pxn~_~c~~~~hppf^`~kbb~q^~i^~al");

// IQ2_S
inline constexpr auto kIQ2SGrid = unpack_grid<1024, 8>(
    kIQ2Levels,
    "]^^^^^^^^^^^^`^^^^^^^`^^^^^^^`^b``^^^^^^^^`^b^^^`^^^^`^`^b^^b^b^^^`^bd^^^^^`j```dd^^^^^^^`^^^^^^^^^^"
    "^^^^^b^^^^`^`^b^^^^^^^^^`^`^^^^^^^`^b^^^`^bf^^^^`j`^`^bf^bn^^^`^^^^``^^^^^^^^`^b`dj^^b^^^`d`^`^bfdnf"
    "^d`^f~]h^^^^^^^`^^`^^^`^^^^^^^`^^``^`^b^^^^^^^^^^^^`^^^^^^^`^b^^^`^l^`^`b^b`b^l^bn^^^`^^^^`^`^^^^^^^"
    "`^b^^^`^bf^^^^^^^`^b^^^`^bf^bn`^`^bf^bnv^^^^^`^`d^^^`^bf^t^^^`^bf^blrfbnj~c^^^`^^^^``^^b^^dbd`j^^b^^"
    "bd^^b^bf^bndh`^`bt^l`^^^^`^`^b^^^`^bf^bn`^`^bf^bj`x^bnl~a`b^l^bvn^^b~urhxh^p^^^^^^^^^^^`^^^^^^^^^^^b"
    "^b`^`^b^^^`^^^^^^b^^^^^^^`^b^^^`^bf^b^^^bb`^`^bf^t^^^^^^^^^^^^`^^^^^^^`^b^^^`^bf^^^^^^^`^b^^^`^bd^^b"
    "n^^^`^bf^bnrb^`^^^^`^b^^^`^bhbn^^^`^bf^bnjj^bn~q^^^`^^^^^^^`^^^^^^^`^b^^^`^l^^^^^^^`^b^^^`^bf^bn`^`^"
    "bf^bl^x^^^^^^^`^b^^^`^bf^bn^^^`^bf^bnx^bj`~q^^^`^bf^bdfx^bn~ql~ep`^^`^^^`^b`^`^bhbn^^^`^bf^bnljbnj|d"
    "`^`^bf^bnx^bndljl~}l^b~cphv~~n~gd^^^`^`^`b^b^^^`d`b^l^`^^^^`^b^^^`^l^bl^``^^l^b~i^^^^^^^`d^^^`^bf^bn"
    "^^^`^bf^bndp^bl^~q`b^l^b~ad^tr~or^hnd^`^^^^bb^^^`^bf^bn`b^l^bd~a^bn~m`^^^`^bf^bnjj^bn~e`d|l~]^bj`~o^"
    "~]`~~~cn```db^^b~abxr~]bh`^z`^l`^bn~]jbl~~~_~ol~m~ipx^f^`~_p");

inline constexpr std::array<std::int8_t, 8> kIQ3XXSLevels = {4, 12, 20, 28, 36, 44, 52, 62};

// IQ3_XXS
inline constexpr auto kIQ3XXSGrid = unpack_grid<256, 4>(
    kIQ3XXSLevels,
    "]^^a^`]^ceu^`^a^c`_^cghd^^ac^c^`fbj`b]^g~^opagh^`bol~nsp`^qjl^a^c^a^^g]t^cc^~j^a^cc~]b^jeilg`~^~c`no"
    "h~~gj|^c^a^`_e{^^_^ccw`]d^cb]^i]ipc`~g`}jtpfw~~_^gsxc^c^qiab^jeg^w^aiqlkn~xkobbhw{nq~cqpgj^h`~~gpk]l"
    "bmz{~`g}jq~~g_^j~mssdbls{j|d~dyg`~^ds~~i~gj~ml^jy|z~`~_b~~`}~`~l~cj~m^^]nl~gf~ewarijq}l{^n~~^");

inline constexpr std::array<std::int8_t, 8> kIQ3SLevels = {1, 3, 5, 7, 9, 11, 13, 15};

// IQ3_S
inline constexpr auto kIQ3SGrid = unpack_grid<512, 4>(
    kIQ3SLevels,
    "]]]_^]]]^^^]`ba^_^^^a^c__]]]^`]`__`^`ci`ab]`^]___`_`b_^^^i_db`_^c^_b`^i^`_g`^_bb_bkf^h^`ab`^kag_^jmk"
    "c^^h^`ai`p]]^`]^^^]^c_^j^_eb]^_^`ac_bc^jb^f_^]`bb_f_fc__]_bb]`ambg^a^i^c`^`qc_bc^k~b`_i^w^a^ch`mbd]^"
    "^^]^^^_^`]^c^^_^i]_^_^b_`__`_bct__f^ac^f`f_`^_`e^a^cbjgbe_c_`u_caei]gid^afx`p`i^gavc^^^_c^^a^_^fbd^^"
    "ca^ilf`^fbf^huc`a^`]e^`bjdba`cmb`ic^gaffioo|^i^g~^`bb`__cclfa^^cbabb`p^aa`fak_bha^a^c`~^^ng]uh^f}ump"
    "taggbub`bj`__hba^^ace|befabisa]kiahbb_hfh~_ho^~r|^j~r^^h^qllcyrnbgabdhak~pjkj_upqw~d^~p`_e^h^hblcgk^"
    "x_`b_cmut_jr`bat~el|s~b");

inline constexpr std::array<std::int8_t, 3> kIQ1Levels = {-1, 0, 1};

// IQ1_S and IQ1_M
inline constexpr auto kIQ1Grid = unpack_grid<2048, 8>(
    kIQ1Levels,
    "]^^^^^_a^`^ab^^da^`^aa^`^`]b^^^]ab`^`^`^^^]cb^^da^`^aa^`^abba`^^`^^__^^`^g^^dbbb``]kbbb^]]d^^d^``]]^"
    "]]^^^^^^^e_^^^^]]^j`h^b^^^_]`^bb^`g^`^aa^`^ab`da^`^aa^`^ab^`a]bd]_b^`h^^^ba^`^aa^`^abb__a^^^^aa^`^f]"
    "^`a]b^b`^`^]_h^^a_b^^^^^^^`^`b`]]]]]]^^`dd^b^l^^daa^`^^^`^db^^db`^a]^]_`a_]]^^^]]^`^^b`^_]^]]^^]_`^`"
    "^^]]^^^^^^^^]]a]]]]^]^^]]^^^]]^^]]^]]^]]^^b^]]d]]^^``^]]^^^_]]]_^]^]]b__^d`h`db^^^^`^^]]^^^bb^fj^^`^"
    "_c]]^`^]]^]]``d_]^^``^ecc^c^^^^^^``^bb`_f^`^aa^^^^abb__a^`^aa^^^^ab^`bc]`b^^^^]]daa^bba^^_a^`^ab`^bb"
    "a^^_a^`^ad^^bd]]^`^^^bdb^`__hbbb^`^`^]_`^^f^_]^^^^^^ba^abbbba]ba^`df^`^aa^`^ab^fa^`^f^`^d_^`bf^`^b^^"
    "^baa^a]a^`^f^`^ab`^ba^`^aa^`^ab`dh`^^^^^^l`_``]^^^`^]]^^`^b^^^^]]^]a^^^^^`^^a]]gb^^dbf^```eafbh_eb^^"
    "^^]]a]^^^^`^^^^a]b_]^`^^]]^^``^^]]^^]^]]]]_^]]^`]]^`^]]^]a^^^__a]^^^^`^^^^_]]^]^`^^`_``]b^^db_`aca^`"
    "^`^^^bb^^^bb_]_]_]^`^^```^]]]]^^^^]_b^`^]]`^^^ll^^b^^``jfb^]]^`^`^^`^`^`^]]^b^d^b^_]`^b^]]^^]]]]^`]]"
    "^^^]]^^]]]]]]]]^^]]^`^b^]]^^``^`b^`^^d^`^^]]^`^ea^^_]`e]b^]]]]__^^^^]]^]]]^]]]]]^]]]]^^b^^^]]^_^]`^]"
    "]]]^^]]]]]^]^^]]^^]]]]]]]^]]]]]]]]]]^]]]]]^^]_]]]^]]]]_^]]^^]]]^]]_^]^]^]]]]]]]__]]]]]]]]]]]]]^^]_`^"
    "]]]]^_`_^]]]a]]^^`^`ca^^^^]]]]^^]]ca^^^^`b_]^`^^]]^bb^]]^^]]]]]]]]^^]]^____^]]]]bd_c`]`]^b^]__]]]`^^"
    "^^c_^]]^^hd^^bdb`]]^^^^^_idb^^^`^b]_^b___]^b]_`a_^b`^h`^g]`d]]_ib`dk]^]_^`^^^^^^^^]]^]]^^d]_^^]]]]^^"
    "^`b^^^_]^j]]^^]^]]^_^]]^c^]^_]^]_^]]aabaa]]^`^^^^]]]^]`^_^^``^]]^_^_k^bbf^`^bbbada^b`b^^^^]_]]`^]]^^"
    "``_]aab^]_h`]i^`^`^^`]_cc_^b`^`^f^`^aa]^^^ba^`^aa^`^ab^^^bb^`^^^]]]a^^b_a^^ba^`^aa^`^g^`ba^`^aa^`^i`"
    "h^c_`^^`j`hb`^`b^^]_^`^]]^]a]]^^^^^^^^^dj`^bb^`]]`_]^`_abc`b^`^aa^`^^_b^`b_^^`^aa^`^a]a^^db^^^^^^`^^"
    "ff^ba^`^aa^`^ab^^i^`^aa^`^ab`]]bb`^b^^d]ab^^^bb^^^^`^^^^^^^`a]^]]^`^d^b^^`^^^bb^`bd^^^^^^d^bd^g_^^``"
    "^d`d^^]]]]^]]^d^b]]^`b^`^^]]^]]^___]^^]]^^]]]]]]]]^^]]^__^`]]]]^]]^^^^^^b`_^a^b^]_]^]^b^a]`]_]]d^^bf"
    "^bb``^^]_`]eb`^bd^^^^^^^]]^^`^^^^^^]]^`^]_^^b^^`^`deed^^^`^`hb^]]i^`^aa^`^ab^^^g^`^aa^`^a__^^^]k^__^"
    "^^^fa^_^i`^]c``^ab`^ba^`^aa^`^mbb^b_]^^^_]]]bx^^^^^d^`^b^]]^b`^^]]^`^^lb`_^_d^__^]]_^h``]^_^^`^`^f^`"
    "^g^^^g^`^aa^`^ad`__bd``^`^gai^`^f^`^g^^i^`^aa^`^");

}  // namespace doppler
