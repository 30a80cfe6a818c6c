"""What the quick set leaves to the slow one: it seldom changes, or is shown there of one method in place of all."""

# What holds for every method alike is shown of these methods by the slow set alone; their own numbers (transcripts,
# counts, identities) are in the quick set.
SELDOM = {
    "aid-fp", "amigo", "bome", "bsa", "fsla", "ma-soba", "mrbo-d", "mstsa", "pzobo", "rsvrb", "saba", "sema", "spaba",
    "srba", "stable", "stocbio", "sustain", "ttsa",
}  # fmt: skip

# The paper's own, shown on both problems by the quick set; all others on the harder one, and by the slow set on both.
ON_BOTH = ("mrbo", "vrbo")

# Proofs of several seconds about one room that seldom changes; the quick set has shorter ones of the same rooms.
PROOFS = {
    "test_auto_eta": {"test_runs_can_be_differentiated", "test_auto_side_by_side"},
    "test_benchmark": {"test_the_data_have_their_published_sizes"},
    "test_clean": {"test_decisions_by_keyboard_are_exported_and_fed_back"},
    "test_damping": {"test_methods_run_with_it_and_with_prepared_batches"},
    "test_doctor": {"test_the_cache_of_compiled_programs_is_shown_limited_and_emptied"},
    "test_estimators": {"test_unbiased_on_random_batches"},
    "test_figures": {"test_every_picture_of_a_measurement_is_drawn_again"},
    "test_files": {"test_a_damaged_run_does_not_stop_report_or_run"},
    "test_page": {
        "test_charts_are_drawn_when_they_come_near_and_all_for_printing",
        "test_curves_can_be_hidden_and_shown",
        "test_paper_has_no_controls_and_is_white",
        "test_the_axes_follow_the_controls",
    },
    "test_penalties": {
        "test_a_group_shares_one_penalty",
        "test_it_survives_pickle_and_joblib",
        "test_no_direction_is_more_curved_than_one",
    },
    "test_platforms": {"test_every_method_lowers_for_gpus_and_tpus"},
    "test_report": {"test_pictures_are_written_and_the_same_every_time"},
    "test_resume": {"test_the_identity_of_a_run_is_the_same_in_another_process"},
    "test_sampler": {"test_blocks_are_unbiased"},
    "test_sklearn": {
        "test_a_class_that_is_missing_among_the_trusted_is_said",
        "test_no_direction_is_more_curved_than_one",
        "test_the_confusion_is_that_of_the_labels",
    },
    "test_sparse": {"test_vmap_over_the_matrix_and_over_the_rows"},
}
