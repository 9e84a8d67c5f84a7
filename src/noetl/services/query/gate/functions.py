"""The functions a query may call. What is not named here is refused, whatever it is called by."""

from __future__ import annotations

from typing import Final

_KNOWN: Final = """
    And Or Xor Case Cast Coalesce Exists If Nullif Nvl2 TryCast Typeof
    AnyValue ApproxDistinct ApproxQuantile ArgMax ArgMin ArrayAgg ArrayUniqueAgg Avg BitwiseAndAgg BitwiseOrAgg
    BitwiseXorAgg Corr Count CountIf CovarPop CovarSamp First GroupConcat Grouping GroupingId Kurtosis Last List
    LogicalAnd LogicalOr Max Median Min Mode PercentileCont PercentileDisc Quantile RegrAvgx RegrAvgy RegrCount
    RegrIntercept RegrR2 RegrSlope RegrSxx RegrSxy RegrSyy Skewness Stddev StddevPop StddevSamp Sum Variance VariancePop
    CumeDist DenseRank FirstValue Lag LastValue Lead NthValue Ntile PercentRank Rank RowNumber
    Abs Acos Acosh Asin Asinh Atan Atan2 Atanh BitwiseCount Cbrt Ceil Cos Cosh Cot Degrees Exp Factorial Floor Greatest
    IsInf IsNan Least Ln Log Nanvl Pi Pow Radians Rint Round SafeAdd SafeDivide SafeMultiply SafeSubtract Sign Sin Sinh
    Sqrt Tan Tanh Trunc WidthBucket
    Ascii BitLength ByteLength Chr Concat ConcatWs Contains Decode Encode EndsWith FromBase64 Hex Initcap
    JarowinklerSimilarity Left Length Levenshtein Lower LowerHex MD5 NumberToStr Overlay Pad RegexpCount RegexpExtract
    RegexpExtractAll RegexpFullMatch RegexpILike RegexpInstr RegexpLike RegexpReplace RegexpSplit Repeat Replace Reverse
    Right SHA SHA2 Soundex Space Split SplitPart StartsWith StrPosition StringToArray Substring SubstringIndex ToBase64
    ToChar ToNumber Translate Trim Unhex Unicode Upper
    AddMonths ConvertTimezone CurrentDate CurrentTimestamp Date DateAdd DateBin DateDiff DateFromParts DateFromUnixDate
    DateStrToDate DateSub DateToDateStr DateToDi DateTrunc Datetime DatetimeAdd DatetimeDiff DatetimeSub DatetimeTrunc Day
    DayOfMonth DayOfWeek DayOfWeekIso DayOfYear Dayname DiToDate Extract Hour LastDay MakeInterval Minute Month Monthname
    MonthsBetween NextDay Quarter Second StrToDate StrToTime StrToUnix Time TimeAdd TimeDiff TimeFromParts TimeStrToDate
    TimeStrToTime TimeStrToUnix TimeSub TimeToStr TimeToTimeStr TimeToUnix TimeTrunc Timestamp TimestampAdd TimestampDiff
    TimestampFromParts TimestampSub TimestampTrunc TsOrDiToDi TsOrDsAdd TsOrDsDiff TsOrDsToDate TsOrDsToDateStr
    TsOrDsToDatetime TsOrDsToTime TsOrDsToTimestamp UnixDate UnixMicros UnixMillis UnixSeconds UnixToStr UnixToTime
    UnixToTimeStr Week WeekOfYear Year YearOfWeek YearOfWeekIso
    FromJson JSONArray JSONArrayContains JSONExists JSONExtract JSONExtractScalar JSONFormat JSONKeys JSONObject JSONType
    ParseJSON
    Array ArrayAll ArrayAny ArrayAppend ArrayCompact ArrayConcat ArrayContains ArrayContainsAll ArrayDistinct ArrayExcept
    ArrayFilter ArrayFirst ArrayInsert ArrayIntersect ArrayLast ArrayMax ArrayMin ArrayOverlaps ArrayPosition ArrayPrepend
    ArrayRemove ArrayReverse ArraySize ArraySlice ArraySort ArraySum ArrayToString ArraysZip Explode _ExplodeOuter Flatten
    GenerateSeries Inline Map MapContainsKey MapFromEntries MapKeys MapSize Posexplode PosexplodeOuter Reduce StarMap
    StrToMap Struct StructExtract ToMap Transform Unnest VarMap
"""
_DUCKDB: Final = """
    add subtract multiply divide mod fmod fdiv gcd lcm greatest_common_divisor least_common_multiple log2 log10 ceiling
    power round_even roundbankers even gamma lgamma signbit nextafter isfinite xor bit_count geomean geometric_mean
    arbitrary arg_max_null arg_min_null argmax argmin max_by min_by bool_and bool_or bit_and bit_or bit_xor entropy favg
    fsum histogram kahan_sum sumkahan kurtosis_pop mad mean product quantile quantile_cont quantile_disc sem var_pop
    var_samp reservoir_quantile approx_top_k wavg weighted_avg listagg string_agg group_concat list array_agg countif
    count_if count_star row_number rank rank_dense dense_rank percent_rank cume_dist ntile lag lead first_value
    last_value nth_value fill
    char_length character_length octet_length strlen len length_grapheme left_grapheme right_grapheme
    substring_grapheme lcase ucase ltrim rtrim instr position strpos prefix suffix ord string_split str_split
    string_split_regex str_split_regex regexp_split_to_array regexp_matches regexp_escape strip_accents nfc_normalize
    damerau_levenshtein editdist3 hamming mismatches jaccard jaro_similarity jaro_winkler_similarity to_hex from_hex bin
    unbin to_binary from_binary sha1 sha256 hash format_bytes parse_filename url_encode url_decode to_base64 base64
    like_escape ilike_escape
    age century decade millennium era julian isodow isoyear weekday weekofyear yearweek dayofmonth dayofweek dayofyear
    date_part datepart datesub date_sub datediff date_diff datetrunc date_trunc date_add time_bucket epoch epoch_ms
    epoch_us epoch_ns make_date make_time make_timestamp make_timestamptz microsecond millisecond nanosecond timezone
    to_days to_hours to_microseconds to_milliseconds to_minutes to_months to_quarters to_seconds to_weeks to_years
    to_timestamp try_strptime strptime strftime today now get_current_timestamp transaction_timestamp days_in_month
    normalized_interval last_day dayname monthname
    json json_array_length json_contains json_exists json_extract json_extract_path json_extract_path_text
    json_extract_string json_keys json_merge_patch json_quote json_structure json_type json_valid json_value to_json
    row_to_json array_to_json json_object json_array json_group_array json_group_object from_json json_transform
    list_aggregate list_aggr list_any_value list_append list_apply list_avg list_bool_and list_bool_or list_cat
    list_concat list_contains list_count list_distinct list_element list_extract list_filter list_first list_has
    list_has_all list_has_any list_indexof list_intersect list_last list_max list_median list_min list_mode list_pack
    list_position list_prepend list_product list_reduce list_reverse list_reverse_sort list_select list_slice list_sort
    list_stddev_pop list_stddev_samp list_string_agg list_sum list_transform list_unique list_value list_var_pop
    list_var_samp list_where list_zip list_cosine_similarity list_cosine_distance list_distance list_dot_product
    list_inner_product array_append array_cat array_concat array_contains array_cosine_similarity array_distance
    array_distinct array_extract array_filter array_has array_has_all array_has_any array_indexof array_inner_product
    array_length array_position array_prepend array_reduce array_reverse array_reverse_sort array_slice array_sort
    array_to_string array_transform array_unique array_value array_where array_zip flatten cardinality element_at map
    map_concat map_contains map_entries map_extract map_extract_value map_from_entries map_keys map_values struct_pack
    struct_extract struct_insert struct_concat row unnest split_part
"""
_SPARK: Final = """
    approx_count_distinct approx_percentile percentile percentile_approx bool_and bool_or every some any bit_and bit_or
    bit_xor collect_list collect_set count_if max_by min_by mean regr_avgx regr_avgy regr_count regr_intercept regr_r2
    regr_slope regr_sxx regr_sxy regr_syy std try_avg try_sum listagg string_agg histogram_numeric
    acos bround conv div e exp expm1 hypot log10 log1p log2 negative positive pmod power sec csc shiftleft shiftright
    shiftrightunsigned signum try_add try_divide try_mod try_multiply try_subtract width_bucket bit_count getbit
    zeroifnull nullifzero equal_null nvl ifnull isnull isnotnull
    btrim char char_length character_length crc32 elt find_in_set format_number hash instr lcase len levenshtein locate
    ltrim mask octet_length position quote regexp regexp_substr rlike rtrim sentences sha sha1 split_part
    substr to_number try_to_number ucase xxhash64 luhn_check startswith endswith contains ilike like to_char to_varchar
    overlay
    add_months curdate current_timezone date_diff date_from_unix_date date_part datepart dateadd datediff dayname day
    dayofmonth dayofweek dayofyear from_unixtime from_utc_timestamp hour last_day localtimestamp make_date
    make_dt_interval make_interval make_timestamp make_ym_interval monthname next_day now timestamp_micros
    timestamp_millis timestamp_seconds to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp
    to_utc_timestamp try_to_date try_to_timestamp unix_date unix_micros unix_millis unix_seconds unix_timestamp weekday
    weekofyear window window_time session_window trunc
    get_json_object json_array_length json_object_keys schema_of_json to_json try_parse_json parse_json variant_get
    try_variant_get is_variant_null to_variant_object
    aggregate array_agg array_append array_compact array_insert array_join array_max array_min array_position
    array_prepend array_remove array_size array_sort array_union arrays_overlap arrays_zip cardinality element_at exists
    filter flatten forall get inline inline_outer map_concat map_contains_key map_entries map_filter map_from_arrays
    map_from_entries map_keys map_values map_zip_with named_struct posexplode posexplode_outer explode_outer reduce
    reverse size slice sort_array transform_keys transform_values try_element_at zip_with stack
"""

KNOWN: Final = frozenset(_KNOWN.split())
"""Functions that sqlglot has a class for, by the name of the class; the same for both engines."""
NAMED: Final = {"duckdb": frozenset(_DUCKDB.split()), "spark": frozenset(_SPARK.split())}
"""Further functions of each engine, by name."""
